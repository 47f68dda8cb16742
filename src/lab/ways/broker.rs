//! Through a broker: buyers put their wish into a stream and wait for an answer. One writer takes the wishes as they came and
//! writes many of them in one transaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Integer};
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::ConnectionLike;
use tokio::sync::{Notify, oneshot};

use crate::base::error::Error;
use crate::base::lock;
use crate::lab::background::Background;
use crate::lab::ground::{Fault, Ground, LabKey};
use crate::lab::steps::{Answer, Ask, read, write};
use crate::lab::way::{About, Way};
use crate::store::db::pool::{Conn, Pool};
use crate::store::redis::links::Link;

/// Wishes written together.
const TOGETHER: usize = 200;
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Broker {
    waiting: Arc<Waiting>,
    writer: Mutex<Option<Background>>,
}

#[derive(Default)]
struct Waiting {
    /// Whom to tell the answer, by buyer.
    buyers: Mutex<HashMap<i32, oneshot::Sender<Answer>>>,
    /// There is a new wish.
    came: Notify,
}

impl Way for Broker {
    fn about(&self) -> About {
        About {
            name: "through a broker",
            english: "The crowd waits in a stream, not in connections: one of them is enough. One writer needs no lock. \
                      Buyers get their answer later, so they need a page that tells them, and somebody must take over \
                      if the writer dies.",
            korean: "사람들은 연결이 아니라 스트림에서 기다린다. 연결 하나면 되고, 쓰는 쪽이 하나라 락도 없다. 답은 나중에 \
                     오므로 알려 줄 화면이 필요하고, 쓰는 쪽이 죽으면 누군가 이어받아야 한다.",
        }
    }

    fn prepare<'a>(&'a self, ground: &'a Ground, _buyers: i32, _items: i32) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            let (waiting, link, db) = (self.waiting.clone(), ground.link.clone(), ground.db.clone());
            *lock(&self.writer) = Some(Background::spawn(async move {
                if let Err(error) = serve(&waiting, link, &db).await {
                    tracing::error!(%error, "the writer of the lab ended");
                    // Nobody waits in vain.
                    lock(&waiting.buyers).clear();
                }
            }));
            Ok(())
        }
        .boxed()
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let (tell, answer) = oneshot::channel();
            lock(&self.waiting.buyers).insert(ask.buyer, tell);
            let mut add = redis::cmd("XADD");
            add.arg(LabKey::Requests.name()).arg("*");
            add.arg("item").arg(ask.item).arg("buyer").arg(ask.buyer).arg("by").arg(ask.by);
            let _: String = add.query_async(&mut ground.link.clone()).await?;
            self.waiting.came.notify_one();
            let answered = tokio::time::timeout(LONGEST_WAIT, answer).await;
            Ok(answered.map_err(Error::internal)?.map_err(Error::internal)?)
        }
        .boxed()
    }

    fn finish<'a>(&'a self, _ground: &'a Ground) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            drop(lock(&self.writer).take());
            Ok(())
        }
        .boxed()
    }
}

async fn serve(waiting: &Waiting, mut link: Link, db: &Pool) -> Result<(), Fault> {
    loop {
        let (entries, asks) = oldest(&mut link).await?;
        if asks.is_empty() {
            waiting.came.notified().await;
            continue;
        }
        let mut conn = db.get().await?;
        let answers = conn.transaction(async |conn| write_all(conn, &asks).await).await?;
        // After the commit, so a writer that dies here leaves them for the next one.
        redis::cmd("XDEL").arg(LabKey::Requests.name()).arg(&entries).exec_async(&mut link).await?;
        let mut buyers = lock(&waiting.buyers);
        for (ask, answer) in asks.iter().zip(answers) {
            if let Some(tell) = buyers.remove(&ask.buyer) {
                // A buyer who gave up needs no answer.
                let _ = tell.send(answer);
            }
        }
    }
}

async fn oldest(link: &mut impl ConnectionLike) -> Result<(Vec<String>, Vec<Ask>), Fault> {
    type Fields = (String, i32, String, i32, String, i64);
    let mut range = redis::cmd("XRANGE");
    range.arg(LabKey::Requests.name()).arg("-").arg("+").arg("COUNT").arg(TOGETHER);
    let found: Vec<(String, Fields)> = range.query_async(link).await?;
    Ok(found.into_iter().map(|(entry, (_, item, _, buyer, _, by))| (entry, Ask { item, buyer, by })).unzip())
}

/// In the order they came. Nobody else writes, so what was read stays true.
async fn write_all(conn: &mut Conn, asks: &[Ask]) -> Result<Vec<Answer>, Fault> {
    let mut items = HashMap::new();
    let (mut done, mut answers) = (Vec::new(), Vec::with_capacity(asks.len()));
    for ask in asks {
        let item = match items.entry(ask.item) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(read(conn, ask.item).await?),
        };
        answers.push(match item.after(ask.by) {
            Some(after) => {
                item.amount = after;
                done.push(*ask);
                Answer::Done
            }
            None => Answer::Refused,
        });
    }
    if !done.is_empty() {
        for (number, item) in items {
            write(conn, number, item.amount).await?;
        }
        let insert =
            diesel::sql_query("INSERT INTO zticket_lab.changes (item, buyer, by) SELECT * FROM unnest($1, $2, $3)");
        insert
            .bind::<Array<Integer>, _>(done.iter().map(|ask| ask.item).collect::<Vec<_>>())
            .bind::<Array<Integer>, _>(done.iter().map(|ask| ask.buyer).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(done.iter().map(|ask| ask.by).collect::<Vec<_>>())
            .execute(conn)
            .await?;
    }
    Ok(answers)
}
