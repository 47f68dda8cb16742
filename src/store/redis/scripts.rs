//! Every write to Redis: one script, one verb, one function. Only this file names scripts.
//!
//! `UNREADY` is an error here ([`Error::Unready`]); every other word is a value of the reply's type. An unknown word is an
//! error of ours and never guessed at.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, Script, ServerErrorKind, ToRedisArgs, Value};
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::{ConcertId, Fetched, OrderId, PersonId, Place, SeatNumber};
use crate::base::metrics::Metrics;
use crate::base::request::{Request, buyer_word};
use crate::base::seat::SeatChange;
use crate::store::redis::keys::{Key, Keys};
use crate::store::redis::replies::Reply;
pub use crate::store::redis::replies::{
    Accept, Admit, Enter, EnterReply, Finished, Hold, Leave, NewBlock, PolicySet, Release, Restore, RestoreArgs,
    Settled, Sweep, Take, Taken, Why,
};

/// How long to wait before a call is repeated because its connection was lost: first not at all.
const RECONNECTING: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(100)];

/// A script as it is embedded: what its header promises is checked by a test.
pub struct Source {
    pub name: &'static str,
    pub text: &'static str,
    pub keys: &'static [Key],
    pub replies: &'static [&'static str],
}

macro_rules! scripts {
    ($( $script:ident = $name:literal [$($key:ident)*] -> $($reply:literal)|*; )*) => {
        #[derive(Clone, Copy)]
        enum Verb { $( $script, )* }

        pub static SOURCES: &[Source] = &[$(
            Source {
                name: $name,
                text: include_str!(concat!("../../../lua/", $name, ".lua")),
                keys: &[$( Key::$key ),*],
                replies: &[$( $reply ),*],
            },
        )*];
    };
}

scripts! {
    LineEnter = "1_line_enter" [Meta Line Policy Pulse0 Pulse1 Pulse2 Pulse3 Pulse4 Back Passes Members]
        -> "ENTERED" | "FULL" | "CLOSED" | "SOLD_OUT" | "STALE" | "NEED_BLOCK" | "UNREADY";
    LineBlock = "1_line_block" [Meta Line Back Pulse0 Pulse1 Pulse2 Pulse3 Pulse4 Members] -> "OK" | "STALE" | "UNREADY";
    LinePulse = "1_line_pulse" [Meta Line Back Tmp Pulse0 Pulse1 Pulse2 Pulse3 Pulse4] -> "OK" | "UNREADY";
    LineLeave = "1_line_leave" [Meta Line Back Passes Limits Seats Owners HoldEnds Held People]
        -> "LEFT" | "GONE" | "UNREADY";
    LineSweep = "1_line_sweep" [Meta Line Policy Back Tmp Pulse0 Pulse1 Pulse2 Pulse3 Pulse4]
        -> "SWEPT" | "SKIPPED" | "UNREADY";
    PassAdmit = "2_pass_admit" [Meta Line Policy Passes Limits Tmp Pulse0 Pulse1 Pulse2 Pulse3 Pulse4 People]
        -> "ADMITTED" | "SKIPPED" | "PAUSED" | "STALE" | "UNREADY";
    SeatHold = "3_seat_hold" [Meta Line Policy Passes Limits Seats Owners HoldEnds Held People]
        -> "HELD" | "YOURS" | "TAKEN" | "ANOTHER" | "NO_PASS" | "NO_SEAT" | "TOO_MANY" | "UNREADY";
    SeatRelease = "3_seat_release" [Meta Line Seats Owners HoldEnds Held]
        -> "RELEASED" | "NOT_YOURS" | "NO_SEAT" | "UNREADY";
    SeatExpire = "3_seat_expire" [Meta Line Seats Owners HoldEnds Held] -> "EXPIRED" | "UNREADY";
    TicketSettle = "4_ticket_settle" [Meta Line Back Passes Limits Seats Owners Versions HoldEnds Held People]
        -> "SETTLED" | "UNREADY";
    OrderAccept = "4_order_accept" [Meta Line Passes Limits HoldEnds Held Requests Pending Frozen Latest People]
        -> "ACCEPTED" | "KNOWN" | "OTHER" | "ANOTHER" | "NO_PASS" | "FULL" | "UNREADY";
    OrderTake = "4_order_take" [Meta Line Requests Working] -> "TAKEN" | "NONE" | "BUSY" | "UNREADY";
    OrderBegin = "4_order_begin" [Meta Line Pending Working] -> "BEGUN" | "UNREADY";
    OrderFinish = "4_order_finish" [Meta Line Passes Limits HoldEnds Held Requests Pending Working Frozen Latest]
        -> "FINISHED" | "UNREADY";
    EventRestore = "5_event_restore" [Meta Line Policy Back Passes Limits Seats Owners Versions HoldEnds Held Tmp
        Pulse0 Pulse1 Pulse2 Pulse3 Pulse4 People] -> "RESTORED" | "PRESENT";
    EventForget = "5_event_forget" [Meta Line Policy Back Passes Limits Seats Owners Versions HoldEnds Held Members Tmp
        Pulse0 Pulse1 Pulse2 Pulse3 Pulse4 Requests Pending Working Frozen Latest People] -> "FORGOTTEN" | "MOVED";
    PolicySet = "policy_set" [Meta Line Policy] -> "OK" | "REFUSED" | "UNREADY";
    EventRead = "event_read" [Meta Line Policy Back Passes Limits Seats Owners Versions HoldEnds Held Frozen]
        -> "READ";
    RankingSet = "ranking_set" [Ranking AsOf] -> "RANKED";
}

/// Who asks for which seats: a place, and the person who uses it.
pub struct Holder<'a> {
    pub place: Place,
    pub person: Option<PersonId>,
    pub seats: &'a [SeatNumber],
}

impl Holder<'_> {
    fn args(&self, at_least_ms: u64) -> impl ToRedisArgs {
        (self.place.0, at_least_ms, buyer_word(self.person), numbers(self.seats))
    }
}

/// The scripts, hashed and ready to call.
pub struct Scripts {
    /// In the order of [`SOURCES`]: each text, with its hash.
    scripts: Vec<(Cow<'static, str>, Script)>,
    metrics: Arc<Metrics>,
}

impl Scripts {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self::with_texts(metrics, |source| source.text.into())
    }

    /// With other texts, as another version of this server has them.
    pub fn with_texts(metrics: Arc<Metrics>, text: impl Fn(&Source) -> Cow<'static, str>) -> Self {
        let hashed = |text: Cow<'static, str>| {
            let script = Script::new(&text);
            (text, script)
        };
        Self { scripts: SOURCES.iter().map(|source| hashed(text(source))).collect(), metrics }
    }

    /// `SCRIPT LOAD` for all, on every master of a cluster. If a server lacks one later, the call that finds out sends it.
    pub async fn load(&self, conn: &mut impl ConnectionLike) -> Result<(), Error> {
        for (_, script) in &self.scripts {
            script.load_async(conn).await?;
        }
        Ok(())
    }

    /// Visitors take the next places. Nobody may hear of a place before the database knows that its block is used.
    pub async fn enter(&self, conn: &mut impl ConnectionLike, keys: &Keys, count: usize) -> Result<EnterReply, Error> {
        Self::entered(&self.call(conn, Verb::LineEnter, keys, |call| call.arg(count)).await?)
    }

    /// The same with one place a person: the outcome is that of the newcomers.
    pub async fn enter_people(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        people: &[PersonId],
    ) -> Result<EnterReply, Error> {
        let reply = self
            .call(conn, Verb::LineEnter, keys, |call| {
                call.arg(people.len());
                for person in people {
                    call.arg(person.0.as_bytes().as_slice());
                }
                call
            })
            .await?;
        Self::entered(&reply)
    }

    fn entered(reply: &Reply) -> Result<EnterReply, Error> {
        let (outcome, places_from) = match reply.word() {
            "ENTERED" => {
                let (first, count, first_rank) = (reply.place(3)?, reply.number(4)?, reply.number(5)?);
                (Enter::Entered { first, count, first_rank }, 6)
            }
            "FULL" => (Enter::Full, 3),
            "CLOSED" => (Enter::Closed, 3),
            "SOLD_OUT" => (Enter::SoldOut, 3),
            "STALE" => return Ok(EnterReply { outcome: Enter::Stale, places: Vec::new(), block: None }),
            "NEED_BLOCK" => return Ok(EnterReply { outcome: Enter::NeedBlock, places: Vec::new(), block: None }),
            _ => return Err(reply.unknown()),
        };
        let place = |at| reply.number::<i64>(at).map(Place::from_db);
        let places: Vec<_> = (places_from..reply.values.len()).map(place).collect::<Result<_, _>>()?;
        let some = matches!(outcome, Enter::Entered { count: 1.., .. }) || places.iter().any(Option::is_some);
        let block = Fetched { start: reply.number(1)?, fetch: reply.number(2)? };
        Ok(EnterReply { outcome, places, block: some.then_some(block) })
    }

    /// Stores a block. `false`: Redis began a new life in the meantime, and nothing was stored.
    pub async fn block(&self, conn: &mut impl ConnectionLike, keys: &Keys, new: &NewBlock) -> Result<bool, Error> {
        let why = match new.why {
            Why::UsedUp => "used_up",
            Why::NewLife => "new_life",
            Why::Refused => "refused",
        };
        let reply = self
            .call(conn, Verb::LineBlock, keys, |call| {
                call.arg(new.places.start).arg(new.places.end).arg(new.fetch);
                call.arg(why).arg(new.gap_wait_ms).arg(new.parked.unwrap_or(-1))
            })
            .await?;
        match reply.word() {
            "OK" => Ok(true),
            "STALE" => Ok(false),
            _ => Err(reply.unknown()),
        }
    }

    /// `dense` is a bitmap whose first bit is place `from`, a multiple of 8. Returns how many places of the gap returned.
    pub async fn pulse(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        from: u32,
        dense: &[u8],
        places: &[u32],
    ) -> Result<u64, Error> {
        let reply = self.call(conn, Verb::LinePulse, keys, |call| call.arg(from).arg(dense).arg(places)).await?;
        match reply.word() {
            "OK" => reply.number(1),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn leave(&self, conn: &mut impl ConnectionLike, keys: &Keys, place: Place) -> Result<Leave, Error> {
        let reply = self.call(conn, Verb::LineLeave, keys, |call| call.arg(place.0)).await?;
        match reply.word() {
            "LEFT" => Ok(Leave::Left),
            "GONE" => Ok(Leave::Gone),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn sweep(&self, conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Sweep, Error> {
        let reply = self.call(conn, Verb::LineSweep, keys, |call| call).await?;
        match reply.word() {
            "SWEPT" => Ok(Sweep::Swept(reply.number(1)?)),
            "SKIPPED" => Ok(Sweep::Skipped),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn admit(&self, conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Admit, Error> {
        let reply = self.call(conn, Verb::PassAdmit, keys, |call| call).await?;
        match reply.word() {
            "ADMITTED" => Ok(Admit::Admitted(reply.number(1)?)),
            "SKIPPED" => Ok(Admit::Skipped(reply.number(1)?)),
            "PAUSED" => Ok(Admit::Paused),
            "STALE" => Ok(Admit::Stale),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn hold(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        at_least_ms: u64,
        party: &Holder<'_>,
    ) -> Result<Hold, Error> {
        let reply = self.call(conn, Verb::SeatHold, keys, |call| call.arg(party.args(at_least_ms))).await?;
        Self::held(&reply)
    }

    /// The same for many, one after the other, in one round trip.
    pub async fn hold_in_turn(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        at_least_ms: u64,
        parties: &[Holder<'_>],
    ) -> Result<Vec<Hold>, Error> {
        let (Some(source), Some((text, script))) =
            (SOURCES.get(Verb::SeatHold as usize), self.scripts.get(Verb::SeatHold as usize))
        else {
            return Err(Error::internal("a verb without a script"));
        };
        let calls = |with_text: bool| {
            let mut pipe = redis::pipe();
            for (at, party) in parties.iter().enumerate() {
                let call = match (with_text, at) {
                    (true, 0) => pipe.cmd("EVAL").arg(text),
                    _ => pipe.cmd("EVALSHA").arg(script.get_hash()),
                };
                call.arg(source.keys.len());
                for key in source.keys {
                    call.arg(keys.get(*key));
                }
                call.arg(party.args(at_least_ms));
            }
            pipe
        };
        let mut outcome: Result<Vec<Vec<Value>>, _> = calls(false).query_async(conn).await;
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            // None of them ran. The text in the first call teaches this server the script for the others.
            outcome = calls(true).query_async(conn).await;
        }
        let held = |values: Vec<Value>| {
            let reply = Reply { values, script: source.name };
            self.metrics.scripts.with_label_values(&[source.name, reply.word()]).inc();
            if reply.word() == "UNREADY" { Err(Error::Unready) } else { Self::held(&reply) }
        };
        outcome?.into_iter().map(held).collect()
    }

    fn held(reply: &Reply) -> Result<Hold, Error> {
        Ok(match reply.word() {
            "HELD" => {
                let (deadline, now): (u64, u64) = (reply.number(1)?, reply.number(2)?);
                Hold::Held { left_ms: deadline.saturating_sub(now) }
            }
            "YOURS" => Hold::Yours,
            "TAKEN" => {
                let pairs = (1..reply.values.len()).step_by(2);
                let taken = pairs.map(|at| Ok((SeatNumber(reply.number(at)?), reply.state(at + 1)?)));
                Hold::Taken(taken.collect::<Result<_, Error>>()?)
            }
            "ANOTHER" => Hold::Another,
            "NO_PASS" => Hold::NoPass,
            "NO_SEAT" => Hold::NoSeat(SeatNumber(reply.number(1)?)),
            "TOO_MANY" => Hold::TooMany(reply.number(1)?),
            _ => return Err(reply.unknown()),
        })
    }

    /// Takes an order to be written later. `to_stream`: by whoever reads the event's stream.
    pub async fn accept(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        request: &Request,
        freeze: Duration,
        most: usize,
        to_stream: bool,
    ) -> Result<Accept, Error> {
        let freeze_ms = u64::try_from(freeze.as_millis()).unwrap_or(u64::MAX);
        let (order, seats, buyer) = (request.order.to_string(), request.seats_word(), buyer_word(request.person));
        let broker = if to_stream { "redis" } else { "other" };
        let reply = self
            .call(conn, Verb::OrderAccept, keys, |call| {
                call.arg(request.place.0).arg(&order).arg(&seats).arg(&buyer).arg(freeze_ms).arg(most).arg(broker)
            })
            .await?;
        Ok(match reply.word() {
            "ACCEPTED" => Accept::Accepted { ahead: reply.number(1)? },
            "KNOWN" => Accept::Known(reply.parsed(1)?),
            "OTHER" => Accept::Other(reply.parsed(1)?),
            "ANOTHER" => Accept::Another,
            "NO_PASS" => Accept::NoPass,
            "FULL" => Accept::Full,
            _ => return Err(reply.unknown()),
        })
    }

    /// The next orders to write, for this writer. With `most` 0 it stops being the writer.
    pub async fn take(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        writer: &str,
        lease: Duration,
        most: usize,
    ) -> Result<Take, Error> {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let reply = self.call(conn, Verb::OrderTake, keys, |call| call.arg(writer).arg(lease_ms).arg(most)).await?;
        let request = |at: usize| {
            let (seats, buyer) = (Request::parse_seats(reply.text(at + 3)?), Request::parse_buyer(reply.text(at + 4)?));
            let (Some(seats), Some(person)) = (seats, buyer) else { return Err(reply.unknown()) };
            Ok(Request { order: reply.parsed(at + 1)?, place: Place(reply.parsed(at + 2)?), seats, person })
        };
        Ok(match reply.word() {
            "TAKEN" => {
                let mut taken = Vec::new();
                for at in (1..reply.values.len()).step_by(5) {
                    let entry = reply.text(at)?.to_owned();
                    match request(at) {
                        Ok(request) => taken.push(Taken { entry: Some(entry), request }),
                        Err(error) => {
                            tracing::error!(%entry, %error, "an entry of the stream is no order, left out");
                            let (requests, working) = (keys.get(Key::Requests), keys.get(Key::Working));
                            let mut gone = redis::pipe();
                            gone.cmd("XDEL").arg(requests).arg(entry).srem(working, reply.text(at + 1)?);
                            gone.exec_async(conn).await?;
                        }
                    }
                }
                Take::Taken(taken)
            }
            "NONE" => Take::None,
            "BUSY" => Take::Busy { left: Duration::from_millis(reply.number(1)?) },
            _ => return Err(reply.unknown()),
        })
    }

    /// Orders that another broker kept are being written. Returns those that do not wait here.
    pub async fn begin(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        orders: &[OrderId],
    ) -> Result<Vec<OrderId>, Error> {
        let words: Vec<String> = orders.iter().map(ToString::to_string).collect();
        let reply = self.call(conn, Verb::OrderBegin, keys, |call| call.arg(&words)).await?;
        match reply.word() {
            "BEGUN" => (1..reply.values.len()).map(|at| reply.parsed(at)).collect(),
            _ => Err(reply.unknown()),
        }
    }

    /// Orders were decided: PostgreSQL knows. Returns how many were pending until now.
    pub async fn finish(&self, conn: &mut impl ConnectionLike, keys: &Keys, orders: &[Finished]) -> Result<u64, Error> {
        let reply = self
            .call(conn, Verb::OrderFinish, keys, |call| {
                for one in orders {
                    let outcome = if one.paid { "paid" } else { "failed" };
                    call.arg(one.order.to_string()).arg(one.place.0).arg(outcome);
                    call.arg(one.entry.as_deref().unwrap_or("-"));
                }
                call
            })
            .await?;
        match reply.word() {
            "FINISHED" => reply.number(1),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn release(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        place: Place,
        seats: &[SeatNumber],
    ) -> Result<Release, Error> {
        let reply = self.call(conn, Verb::SeatRelease, keys, |call| call.arg(place.0).arg(numbers(seats))).await?;
        match reply.word() {
            "RELEASED" => Ok(Release::Released(reply.number(1)?)),
            "NOT_YOURS" => Ok(Release::NotYours(SeatNumber(reply.number(1)?), reply.state(2)?)),
            "NO_SEAT" => Ok(Release::NoSeat(SeatNumber(reply.number(1)?))),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn expire(&self, conn: &mut impl ConnectionLike, keys: &Keys, most: u64) -> Result<u64, Error> {
        let reply = self.call(conn, Verb::SeatExpire, keys, |call| call.arg(most)).await?;
        match reply.word() {
            "EXPIRED" => reply.number(1),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn settle(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        changes: &[SeatChange],
    ) -> Result<Settled, Error> {
        let reply = self
            .call(conn, Verb::TicketSettle, keys, |call| {
                for change in changes {
                    call.arg(change.seat.0).arg(change.version).arg(change.state.word()).arg(change.place.0);
                }
                call
            })
            .await?;
        match reply.word() {
            "SETTLED" => Ok(Settled { applied: reply.number(1)?, unsold: reply.number(2)? }),
            _ => Err(reply.unknown()),
        }
    }

    pub async fn restore(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        args: &RestoreArgs,
    ) -> Result<Restore, Error> {
        let reply = self
            .call(conn, Verb::EventRestore, keys, |call| {
                call.arg(&args.facts).arg(&args.policy).arg(args.line.as_slice()).arg(args.back.as_slice());
                call.arg(&args.passes).arg(&args.holds).arg(&args.settled)
            })
            .await?;
        match reply.word() {
            "RESTORED" => Ok(Restore::Restored),
            "PRESENT" => Ok(Restore::Present),
            _ => Err(reply.unknown()),
        }
    }

    /// Deletes an event whose last block ends at `end` or before. `false`: Redis has handed out places beyond that.
    pub async fn forget(&self, conn: &mut impl ConnectionLike, keys: &Keys, end: i64) -> Result<bool, Error> {
        let reply = self.call(conn, Verb::EventForget, keys, |call| call.arg(end)).await?;
        match reply.word() {
            "FORGOTTEN" => Ok(true),
            "MOVED" => Ok(false),
            _ => Err(reply.unknown()),
        }
    }

    /// Puts settings in force, unless newer ones are.
    pub async fn policy_set<V: ToRedisArgs>(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        version: i64,
        seed: &str,
        changes: &[(&str, V)],
    ) -> Result<PolicySet, Error> {
        let reply = self
            .call(conn, Verb::PolicySet, keys, |call| {
                call.arg(version).arg(seed);
                for (field, value) in changes {
                    call.arg(*field).arg(value);
                }
                call
            })
            .await?;
        match reply.word() {
            "OK" => Ok(PolicySet::Ok),
            "REFUSED" => Ok(PolicySet::Refused(reply.text(1)?.to_owned())),
            _ => Err(reply.unknown()),
        }
    }

    /// Sets scores as counted at `as_of_ms`; `None` removes a concert. `whole`: the list is complete.
    pub async fn ranking_set(
        &self,
        conn: &mut impl ConnectionLike,
        keys: &Keys,
        as_of_ms: i64,
        lasts: Option<Duration>,
        whole: bool,
        scores: &[(ConcertId, Option<i64>)],
    ) -> Result<u64, Error> {
        let reply = self
            .call(conn, Verb::RankingSet, keys, |call| {
                let lasts_ms = lasts.map_or(0, |lasts| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
                call.arg(as_of_ms).arg(lasts_ms).arg(i32::from(whole));
                for (concert, score) in scores {
                    call.arg(concert.0).arg(score.map(|score| score.to_string()).unwrap_or_default());
                }
                call
            })
            .await?;
        match reply.word() {
            "RANKED" => reply.number(1),
            _ => Err(reply.unknown()),
        }
    }

    #[instrument(level = "debug", skip_all, fields(otel.name = SOURCES.get(verb as usize).map(|source| source.name)))]
    async fn call<A>(&self, conn: &mut impl ConnectionLike, verb: Verb, keys: &Keys, args: A) -> Result<Reply, Error>
    where
        A: Fn(&mut Cmd) -> &mut Cmd,
    {
        let (Some(source), Some((text, script))) = (SOURCES.get(verb as usize), self.scripts.get(verb as usize)) else {
            return Err(Error::Internal("a verb without a script".to_owned()));
        };
        let command = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(source.keys.len());
            for key in source.keys {
                command.arg(keys.get(*key));
            }
            args(&mut command);
            command
        };
        let started = Instant::now();
        let by_hash = command("EVALSHA", script.get_hash());
        let mut outcome: Result<Vec<Value>, _> = by_hash.query_async(conn).await;
        for pause in RECONNECTING {
            if !outcome.as_ref().is_err_and(connection_was_lost) {
                break;
            }
            // Redis was restarted, or the connection was cut; a link of a web worker connects again. Every script can be
            // repeated: at worst, places that nobody hears of are swept. After a timeout nothing is repeated: Redis may
            // still be at work on the first call.
            tokio::time::sleep(pause).await;
            outcome = by_hash.query_async(conn).await;
        }
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            // The server was restarted, promoted or flushed. Sending the text teaches this one; others may be away.
            outcome = command("EVAL", text).query_async(conn).await;
        }
        let elapsed = started.elapsed().as_secs_f64();
        self.metrics.script_seconds.with_label_values(&[source.name]).observe(elapsed);
        let reply = outcome.map(|values| Reply { values, script: source.name }).inspect_err(|error| {
            let kind = if refuses_writes(error) { "refused" } else { "error" };
            self.metrics.scripts.with_label_values(&[source.name, kind]).inc();
        })?;
        self.metrics.scripts.with_label_values(&[source.name, reply.word()]).inc();
        if reply.word() == "UNREADY" { Err(Error::Unready) } else { Ok(reply) }
    }
}

/// Whether Redis answers but takes no writes: it is full, a replica, without its replicas, or unable to save.
fn refuses_writes(error: &RedisError) -> bool {
    matches!(error.code(), Some("OOM" | "READONLY" | "NOREPLICAS" | "MISCONF"))
}

/// Whether a call found a connection that broke since the last one. A cluster says that it has none for the moment.
fn connection_was_lost(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.kind() == ErrorKind::ClusterConnectionNotFound
}

/// The replies to the commands of a MULTI that Redis refused because it is full, read at one moment all the same.
pub async fn read(conn: &mut impl ConnectionLike, keys: &Keys, refused: &Pipeline) -> Result<Vec<Value>, RedisError> {
    let Some(source) = SOURCES.get(Verb::EventRead as usize) else { return Ok(Vec::new()) };
    let mut call = redis::cmd("EVAL");
    call.arg(source.text).arg(source.keys.len());
    for key in source.keys {
        call.arg(keys.get(*key));
    }
    for command in refused.cmd_iter() {
        let words: Vec<&[u8]> = command.args_iter().filter_map(word).collect();
        call.arg(words.len()).arg(words);
    }
    let mut replies: Vec<Value> = call.query_async(conn).await?;
    replies.drain(..replies.len().min(1));
    Ok(replies)
}

fn word(arg: Arg<&[u8]>) -> Option<&[u8]> {
    match arg {
        Arg::Simple(word) => Some(word),
        _ => None,
    }
}

fn numbers(seats: &[SeatNumber]) -> Vec<u32> {
    seats.iter().map(|seat| seat.0).collect()
}
