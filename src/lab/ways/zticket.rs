//! What ZTicket does: its own script lends the seat to one visitor, and only that one goes to the database, where a unique
//! index has the last word.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::base::ids::{Place, SeatNumber};
use crate::lab::event;
use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask};
use crate::lab::way::{About, Way};
use crate::lab::ways::unique_insert::insert;
use crate::store::redis::scripts::{Hold, Holder};

/// A hold lasts at least this long after paying began.
const TIME_TO_PAY_MS: u64 = 5000;

pub struct ZTicket;

impl Way for ZTicket {
    fn about(&self) -> About {
        About {
            name: "ZTicket: hold, then unique insert",
            english: "One call to Redis answers each buyer, and all but one of them need no database connection. \
                      The hold decides who may pay; the index decides who has paid. If Redis forgets the hold, \
                      somebody is refused at the till, and nothing is sold twice.",
            korean: "구매자마다 Redis 호출 한 번으로 답하고, 한 사람만 데이터베이스 연결을 쓴다. 누가 낼 수 있는지는 홀드가, \
                     누가 냈는지는 인덱스가 정한다. Redis가 홀드를 잊으면 누군가 계산대에서 거절될 뿐, 두 번 팔리지 않는다.",
        }
    }

    fn counts(&self) -> bool {
        false
    }

    fn prepare<'a>(&'a self, ground: &'a Ground, buyers: i32, items: i32) -> BoxFuture<'a, Result<(), Fault>> {
        event::make(ground, items.cast_unsigned(), buyers.cast_unsigned(), 0).boxed()
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let (place, seat) = (Place(ask.buyer.cast_unsigned()), SeatNumber(ask.item.cast_unsigned()));
            let scripts = &ground.scripts;
            let holder = Holder { place, person: None, seats: &[seat] };
            match scripts.hold(&mut ground.link.clone(), &ground.keys, TIME_TO_PAY_MS, &holder).await? {
                Hold::Held { .. } => insert(ground, ask).await,
                _ => Ok(Answer::Refused),
            }
        }
        .boxed()
    }
}
