//! What ZTicket does: the line is a bitmap, people enter together by ZTicket's own script, and polls are answered from a copy
//! in the server's memory.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::AsyncCommands;

use crate::base::error::Error;
use crate::base::ids::Place;
use crate::base::lock;
use crate::event::pulses::Pulses;
use crate::event::ranks::Ranked;
use crate::lab::background::Background;
use crate::lab::event;
use crate::lab::ground::{Fault, Ground};
use crate::lab::line::Line;
use crate::lab::way::About;
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::redis::keys::{Key, Keys};
use crate::store::redis::links::Link;
use crate::store::redis::scripts::{Enter, Scripts};

const CAPACITY: Capacity = Capacity { waiting: 10_000, together: 500, at_once: 2 };
/// How often the copy is made, and how often Redis hears who is present, as a server does it.
const COPY_EVERY: Duration = Duration::from_millis(250);
const PULSE_EVERY: u64 = 4;

#[derive(Default)]
pub struct Bitmap {
    copy: Arc<Copy>,
    entrance: OnceLock<Gather<(), u64>>,
    keeping: Mutex<Option<Background>>,
}

#[derive(Default)]
struct Copy {
    line: ArcSwap<Ranked>,
    pulses: Pulses,
}

impl Line for Bitmap {
    fn about(&self) -> About {
        About {
            name: "ZTicket: bitmap",
            english: "A place is a bit, so a million people are 125 KB, and a copy of the line fits into every server. \
                      A rank is a count of bits in memory: polls do not reach Redis at all, only news of who is \
                      present does, once a second for all.",
            korean: "자리 하나가 1비트라 백만 명이 125 KB이고, 줄의 사본이 모든 서버에 들어간다. 순위는 메모리에서 비트를 \
                     세는 일이다. 폴링은 Redis에 닿지 않고, 누가 살아 있는지만 1초에 한 번 모아 보낸다.",
        }
    }

    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            self.stop();
            ground.clear_redis().await?;
            event::make(ground, 1, 0, people).await?;
            self.copy.refresh(ground.link.clone(), &ground.keys).await?;
            let (copy, link, keys) = (self.copy.clone(), ground.link.clone(), ground.keys.clone());
            let scripts = ground.scripts.clone();
            *lock(&self.keeping) = Some(Background::spawn(async move {
                if let Err(error) = copy.keep(link, &scripts, &keys).await {
                    tracing::error!(%error, "the copy of the line is no longer kept");
                }
            }));
            Ok(())
        }
        .boxed()
    }

    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let entrance = self.entrance.get_or_init(|| {
                let (link, scripts, keys) = (ground.link.clone(), ground.scripts.clone(), ground.keys.clone());
                let (entrance, entering) = Gather::new("entering", CAPACITY, move |batch| {
                    enter(link.clone(), scripts.clone(), keys.clone(), batch)
                });
                tokio::spawn(entering);
                entrance
            });
            Ok(entrance.ask(()).await?)
        }
        .boxed()
    }

    fn poll<'a>(&'a self, _ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            // ZTicket counts from 0, the lab from 1.
            let place = Place(u32::try_from(place.saturating_sub(1)).unwrap_or(u32::MAX));
            self.copy.pulses.mark(place);
            Ok(self.copy.line.load().rank(place))
        }
        .boxed()
    }

    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut sum = 0;
            for key in [Key::Line, Key::Pulse0, Key::Pulse1, Key::Pulse2, Key::Pulse3, Key::Pulse4] {
                sum += ground.memory(ground.keys.get(key)).await?;
            }
            Ok(sum)
        }
        .boxed()
    }

    fn finish<'a>(&'a self, _ground: &'a Ground) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            self.stop();
            Ok(())
        }
        .boxed()
    }
}

impl Bitmap {
    fn stop(&self) {
        drop(lock(&self.keeping).take());
    }
}

impl Copy {
    async fn refresh(&self, mut link: Link, keys: &Keys) -> Result<(), Error> {
        let bytes: Vec<u8> = link.get(keys.get(Key::Line)).await?;
        self.line.store(Arc::new(Ranked::new(0, bytes)));
        Ok(())
    }

    async fn keep(&self, mut link: Link, scripts: &Scripts, keys: &Keys) -> Result<(), Error> {
        for round in 1.. {
            tokio::time::sleep(COPY_EVERY).await;
            self.refresh(link.clone(), keys).await?;
            if round % PULSE_EVERY == 0 {
                for bundle in self.pulses.due(0, &(0..0)) {
                    scripts.pulse(&mut link, keys, bundle.from, &bundle.dense, &bundle.places).await?;
                    self.pulses.arrived(0, &bundle);
                }
            }
        }
        Ok(())
    }
}

async fn enter(mut link: Link, scripts: Arc<Scripts>, keys: Keys, batch: Batch<(), u64>) {
    let outcome = match scripts.enter(&mut link, &keys, batch.len()).await.map(|reply| reply.outcome) {
        Ok(Enter::Entered { first, .. }) => Ok(u64::from(first.0) + 1),
        Ok(other) => Err(Error::internal(format!("nobody entered: {other:?}"))),
        Err(error) => Err(error),
    };
    for (at, (_, tell)) in (0..).zip(batch) {
        drop(tell.send(outcome.clone().map(|first| first + at)));
    }
}
