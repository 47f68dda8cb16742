//! Looks into Redis ten times a second, past the servers: who is inside, who was let in, which holds have ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use zticket::base::ids::EventId;
use zticket::store::redis::keys::{Key, Keys};
use zticket_testkit::Outcome;

use crate::stage::{HOLD, PASS, QUEUE_TTL};
use crate::world::{PASSED_ON, Rule, Story, World, lock};

const EVERY: Duration = Duration::from_millis(100);
/// Two looks further apart than this do not show the order of admissions.
const BLINK: Duration = Duration::from_millis(400);
/// Servers end overdue holds and passes about once a second; this is ample.
const TIDY: Duration = Duration::from_secs(5);
/// An answer about a place may be this old.
const AS_OF: Duration = Duration::from_secs(2);
/// A payment may stretch a pass by this.
const TIME_TO_PAY: Duration = Duration::from_secs(10);

/// One moment of an event.
struct Look {
    now_ms: i64,
    passes: HashMap<u32, i64>,
    hold_ends: HashMap<u32, i64>,
    /// Places whose order waits, and their seats: their clock stands still.
    frozen: Frozen,
    seats: Vec<u8>,
    /// Bytes of the line and all that goes with it.
    line_bytes: usize,
}

/// Everything about the line that grows with its places.
const BITMAPS: [Key; 7] = [Key::Line, Key::Back, Key::Pulse0, Key::Pulse1, Key::Pulse2, Key::Pulse3, Key::Pulse4];
/// Ample for the few thousand people in a line here: the front is cut off when two million places are done.
const MOST_LINE_BYTES: usize = 4 << 20;

type Clock = (i64, i64);

/// Places and seats.
type Frozen = (HashSet<u32>, HashSet<u32>);

impl Look {
    async fn at(conn: &mut MultiplexedConnection, keys: &Keys) -> Outcome<Option<Self>> {
        type Fields = (Option<i64>, Option<i64>);
        type Scores = Vec<(u32, f64)>;
        let mut pipe = redis::pipe();
        pipe.cmd("TIME")
            .hmget(keys.get(Key::Meta), &["now", "skew"])
            .zrange_withscores(keys.get(Key::Passes), 0, -1)
            .zrange_withscores(keys.get(Key::HoldEnds), 0, -1)
            .hgetall(keys.get(Key::Frozen))
            .get(keys.get(Key::Seats));
        type Records = HashMap<u32, String>;
        let (clock, (now, skew), passes, hold_ends, records, seats): (Clock, Fields, Scores, Scores, Records, Vec<u8>) =
            read(conn, &mut pipe).await?;
        let held = |record: &String| -> Vec<u32> {
            record.split(' ').filter_map(|word| word.split_once(':')?.0.parse().ok()).collect()
        };
        let frozen = (records.keys().copied().collect(), records.values().flat_map(held).collect());
        let mut lengths = redis::pipe();
        for key in BITMAPS {
            lengths.strlen(keys.get(key));
        }
        let lengths: Vec<usize> = lengths.query_async(conn).await?;
        let line_bytes = lengths.iter().sum();
        let (Some(now), Some(skew)) = (now, skew) else { return Ok(None) };
        let whole = |scores: Scores| scores.into_iter().map(|(one, score)| (one, score as i64)).collect();
        let now_ms = now.max(clock.0 * 1000 + clock.1 / 1000 + skew);
        Ok(Some(Self { now_ms, passes: whole(passes), hold_ends: whole(hold_ends), frozen, seats, line_bytes }))
    }
}

/// At one moment; a full Redis refuses that, and is looked at when it is well again.
async fn read<T: redis::FromRedisValue>(conn: &mut MultiplexedConnection, pipe: &mut redis::Pipeline) -> Outcome<T> {
    Ok(pipe.atomic().query_async(conn).await?)
}

/// On a thread of its own: thousands of visitors in this program must not keep it from looking.
pub fn start(world: Arc<World>, events: Vec<i32>) -> Outcome<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(std::thread::spawn(move || runtime.block_on(run(world, events))))
}

async fn run(world: Arc<World>, events: Vec<i32>) {
    let keys: Vec<(i32, Keys)> =
        events.into_iter().filter_map(|event| Some((event, Keys::new(EventId::try_from(event).ok()?)))).collect();
    let mut conn: Option<MultiplexedConnection> = None;
    let mut last: HashMap<i32, (Instant, HashSet<u32>)> = HashMap::new();
    let mut seen: HashMap<i32, Instant> = HashMap::new();
    while !world.is_over() {
        tokio::time::sleep(EVERY).await;
        let Some(known) = &mut conn else {
            conn = world.stage.redis().await.ok();
            continue;
        };
        for (event, keys) in &keys {
            let asked = Instant::now();
            let Ok(look) = Look::at(known, keys).await else {
                conn = None;
                last.clear();
                break;
            };
            let Some(look) = look else { continue };
            world.counts.lines_seen.fetch_add(1, Relaxed);
            if seen.insert(*event, asked).is_some_and(|before| asked - before > PASS - TIDY / 5) {
                world.blind_until(Instant::now());
            }
            check(&world, *event, &look);
            let inside: HashSet<u32> = look.passes.keys().copied().collect();
            lock(&world.admitted).extend(inside.iter().map(|place| (*event, *place)));
            if let Some((before, known)) = last.get(event).filter(|(before, _)| asked - *before < BLINK) {
                let new: Vec<u32> = inside.difference(known).copied().collect();
                overtaking(&world, *event, *before, &new);
            }
            last.insert(*event, (asked, inside));
        }
    }
}

fn check(world: &World, event: i32, look: &Look) {
    let inside = look.passes.values().filter(|deadline| **deadline > look.now_ms).count();
    if inside > world.stage.max_active {
        world.violated(Rule::NeverTooManyInside, format!("{inside} inside event {event}"));
    }
    if look.line_bytes > MOST_LINE_BYTES {
        let what = format!("the line of event {event} takes {} MB", look.line_bytes >> 20);
        world.violated(Rule::MemoryFollowsPeople, what);
    }
    let ms = |time: Duration| time.as_millis() as i64;
    let rule = Rule::NothingOutlivesItsDeadline;
    let well = !world.any_hurt_since(Instant::now() - TIDY * 2);
    let longest = [
        (&look.passes, &look.frozen.0, PASS + HOLD + TIME_TO_PAY, "pass of place"),
        (&look.hold_ends, &look.frozen.1, HOLD.max(TIME_TO_PAY), "hold of seat"),
    ];
    for (deadlines, frozen, longest, what) in longest {
        for (one, deadline) in deadlines.iter().filter(|(one, _)| !frozen.contains(one)) {
            if *deadline > look.now_ms + ms(longest) {
                world.violated(rule, format!("the {what} {one} of event {event} lasts too long"));
            }
            if well && *deadline < look.now_ms - ms(TIDY) {
                world.violated(rule, format!("the {what} {one} of event {event} is over and still there"));
            }
        }
    }
    for (seat, state) in (1..).zip(&look.seats) {
        if (*state == b'h') != look.hold_ends.contains_key(&seat) {
            world.violated(rule, format!("the hold of seat {seat} of event {event} has no end"));
        }
    }
}

/// Nobody let in since the last look may have stood behind a visitor who still waits and is alive.
fn overtaking(world: &World, event: i32, before: Instant, new: &[u32]) {
    // Visitors who come back inside after a loss were let in before.
    let Some(last) = new.iter().max() else { return };
    for story in lock(&world.stories).iter() {
        let story = lock(story);
        let stands = story.event == event && story.place < *last && story.waiting && story.entered < before;
        let stands = stands && !world.is_void(story.began);
        if stands && alive(world, &story, before) && !lock(&world.admitted).contains(&(event, story.place)) {
            let polls: Vec<_> = story.polls.iter().map(|poll| poll.before(before)).collect();
            let what = format!(
                "place {last} of event {event} was let in before place {}, whose polls were {polls:?} ago (sent, answered, server)",
                story.place
            );
            world.violated(Rule::NobodyOvertakes, what);
        }
    }
}

/// Whether Redis must have heard of this place in the slice of this moment or the one before, and it cannot have been let
/// in since.
fn alive(world: &World, story: &Story, at: Instant) -> bool {
    let slice = QUEUE_TTL / 4;
    story.polls.iter().any(|poll| {
        let (sent, answered, _) = poll.before(at);
        let in_time = answered >= PASSED_ON && sent <= slice - Duration::from_millis(200);
        in_time && world.passed_on(poll) && !world.blind_since(poll.sent - AS_OF)
    })
}
