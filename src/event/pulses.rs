//! Pulses: signs of life of waiting visitors, gathered until Redis knows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::base::ids::Place;
use crate::base::lock;

const CHUNK_PLACES: usize = 1 << 20;
const CHUNK_WORDS: usize = CHUNK_PLACES / 64;
const CHUNKS: usize = (1 << 32) / CHUNK_PLACES;
/// From this many places a chunk on, Redis takes a bitmap faster than a list.
const DENSE: usize = 300;
/// Most neighbouring chunks sent as one bitmap: 512 KB. A nearly full Redis takes small calls longer than large ones.
const DENSE_CHUNKS: usize = 4;
/// Most places one call lists.
const LISTED: usize = 1000;

/// Places heard from lately. Marking is lock-free; [`Pulses::due`] says what Redis does not know yet.
pub struct Pulses {
    /// Polls that Redis may not know of yet.
    heard: Vec<OnceLock<Box<[AtomicU64]>>>,
    sent: Mutex<Sent>,
    held_up: AtomicBool,
}

/// What Redis knows of the present turn of its ring of slices.
#[derive(Default)]
struct Sent {
    turn: u64,
    chunks: HashMap<usize, Vec<u64>>,
}

/// One call's worth of pulses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    pub from: u32,
    pub dense: Vec<u8>,
    pub places: Vec<u32>,
    /// What to remember once it has arrived.
    words: Vec<(usize, usize, u64)>,
}

impl Default for Pulses {
    fn default() -> Self {
        Self {
            heard: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            sent: Mutex::default(),
            held_up: AtomicBool::new(false),
        }
    }
}

impl Pulses {
    pub fn mark(&self, place: Place) {
        let at = place.0 as usize;
        let Some(slot) = self.heard.get(at / CHUNK_PLACES) else { return };
        let chunk = slot.get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect());
        let Some(word) = chunk.get(at % CHUNK_PLACES / 64) else { return };
        let bit = 1 << (63 - at % 64);
        // Most polls find the bit set: reading first keeps the cache line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// What Redis does not know in this turn of the ring. Places in `listed` (the gap) are always listed one by one.
    pub fn due(&self, turn: u64, listed: &std::ops::Range<u64>) -> Vec<Bundle> {
        let mut sent = lock(&self.sent);
        if sent.turn != turn {
            *sent = Sent { turn, chunks: HashMap::new() };
        }
        let mut bundles = Bundles { listed: listed.clone(), ..Bundles::default() };
        for (index, slot) in self.heard.iter().enumerate() {
            let Some(heard) = slot.get() else { continue };
            let known = sent.chunks.get(&index);
            let known = |at: usize| known.and_then(|words| words.get(at)).copied().unwrap_or(0);
            let news = heard.iter().enumerate().filter_map(|(at, word)| {
                let heard = word.load(Ordering::Relaxed);
                let again = heard & known(at);
                if again != 0 {
                    // Good for this turn only: whoever is not heard from in the next one must not seem to be there.
                    word.fetch_and(!again, Ordering::Relaxed);
                }
                let new = heard & !again;
                (new != 0).then_some((index, at, new))
            });
            bundles.add(news.collect());
        }
        bundles.finish()
    }

    /// Remembers that a bundle arrived, so that it is not sent again in this turn.
    pub fn arrived(&self, turn: u64, bundle: &Bundle) {
        let mut sent = lock(&self.sent);
        if sent.turn != turn {
            return;
        }
        for (index, at, bits) in &bundle.words {
            let chunk = sent.chunks.entry(*index).or_insert_with(|| vec![0; CHUNK_WORDS]);
            if let Some(word) = chunk.get_mut(*at) {
                *word |= bits;
            }
            if let Some(word) = self.heard.get(*index).and_then(OnceLock::get).and_then(|heard| heard.get(*at)) {
                word.fetch_and(!bits, Ordering::Relaxed);
            }
        }
    }

    /// Whether Redis did not take the last bundles.
    pub fn held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    pub fn set_held_up(&self, held_up: bool) {
        self.held_up.store(held_up, Ordering::Relaxed);
    }
}

/// Packs pulses: as bitmaps where they are dense, as lists elsewhere and in the gap.
#[derive(Default)]
struct Bundles {
    listed: std::ops::Range<u64>,
    done: Vec<Bundle>,
    list: Bundle,
    /// The bitmap being filled, and the chunks it covers.
    dense: Bundle,
    dense_chunks: std::ops::Range<usize>,
}

impl Bundles {
    /// Takes the news of one chunk; chunks come in order.
    fn add(&mut self, news: Vec<(usize, usize, u64)>) {
        let total: usize = news.iter().map(|(_, _, bits)| bits.count_ones() as usize).sum();
        for (index, at, bits) in news {
            let first = u32::try_from(index * CHUNK_PLACES + at * 64).unwrap_or(u32::MAX);
            let in_gap = u64::from(first) < self.listed.end && u64::from(first) + 64 > self.listed.start;
            if total > DENSE && !in_gap {
                self.fill(index, at, bits);
            } else {
                self.name(first, (index, at, bits));
            }
        }
    }

    fn fill(&mut self, index: usize, at: usize, bits: u64) {
        let chunks = &mut self.dense_chunks;
        if index > chunks.end || index >= chunks.start + DENSE_CHUNKS {
            self.done.push(std::mem::take(&mut self.dense));
            *chunks = index..index;
        }
        chunks.end = index + 1;
        self.dense.from = u32::try_from(chunks.start * CHUNK_PLACES).unwrap_or(u32::MAX);
        let offset = ((index - chunks.start) * CHUNK_WORDS + at) * 8;
        self.dense.dense.resize(offset, 0);
        self.dense.dense.extend_from_slice(&bits.to_be_bytes());
        self.dense.words.push((index, at, bits));
    }

    fn name(&mut self, first: u32, word: (usize, usize, u64)) {
        let set = (0..64).filter(|bit| (word.2 >> (63 - bit)) & 1 == 1);
        self.list.places.extend(set.map(|bit| first + bit));
        self.list.words.push(word);
        if self.list.places.len() > LISTED - 64 {
            self.done.push(std::mem::take(&mut self.list));
        }
    }

    fn finish(mut self) -> Vec<Bundle> {
        self.done.push(self.dense);
        self.done.push(self.list);
        self.done.retain(|bundle| !bundle.words.is_empty());
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ranks::Ranked;
    use proptest::prelude::*;

    /// All places in a bundle.
    fn places(bundle: &Bundle) -> Vec<u32> {
        let marked = Ranked::new(bundle.from.into(), bundle.dense.clone());
        let dense = (0..bundle.dense.len() as u32 * 8).map(|at| bundle.from + at);
        let dense = dense.filter(|place| marked.contains(Place(*place)));
        dense.chain(bundle.places.iter().copied()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_due_is_what_was_marked_and_not_yet_sent(
            first in prop::collection::btree_set(0u32..3_000_000, 0..2000),
            second in prop::collection::btree_set(0u32..3_000_000, 0..200),
        ) {
            let pulses = Pulses::default();
            let told = |turn: u64| {
                let mut told: Vec<u32> = Vec::new();
                for bundle in pulses.due(turn, &(0..0)) {
                    told.extend(places(&bundle));
                    pulses.arrived(turn, &bundle);
                }
                told.sort_unstable();
                told
            };
            first.iter().for_each(|place| pulses.mark(Place(*place)));
            prop_assert_eq!(told(1), first.iter().copied().collect::<Vec<_>>());
            second.iter().for_each(|place| pulses.mark(Place(*place)));
            prop_assert_eq!(told(1), second.difference(&first).copied().collect::<Vec<_>>());
            prop_assert_eq!(told(2), Vec::<u32>::new());
            second.iter().for_each(|place| pulses.mark(Place(*place)));
            prop_assert_eq!(told(2), second.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_crowd_travels_as_a_bitmap_and_the_gap_as_a_list() {
        let pulses = Pulses::default();
        (0..100_000).for_each(|place| pulses.mark(Place(place)));
        let bundles = pulses.due(1, &(64_000..64_128));
        let dense: Vec<_> = bundles.iter().filter(|bundle| !bundle.dense.is_empty()).collect();
        assert_eq!(dense.len(), 1);
        let marked = Ranked::new(dense[0].from.into(), dense[0].dense.clone());
        assert_eq!(marked.count(), 100_000 - 128);
        let listed: Vec<u32> = bundles.iter().flat_map(|bundle| bundle.places.clone()).collect();
        assert_eq!(listed, (64_000..64_128).collect::<Vec<_>>());
    }

    #[test]
    fn dense_neighbours_travel_together_and_far_ones_apart() {
        let pulses = Pulses::default();
        for start in [0, 1 << 20, 40 << 20] {
            (0..1000).for_each(|at| pulses.mark(Place(start + at * 7)));
        }
        let bundles = pulses.due(1, &(0..0));
        assert_eq!(bundles.iter().map(|bundle| bundle.from).collect::<Vec<_>>(), [0, 40 << 20]);
        assert_eq!(bundles.iter().map(places).map(|places| places.len()).collect::<Vec<_>>(), [2000, 1000]);
    }

    #[test]
    fn a_poll_after_the_last_bundle_of_a_turn_counts_for_the_next() {
        let pulses = Pulses::default();
        let tell = |turn| pulses.due(turn, &(0..0)).iter().inspect(|bundle| pulses.arrived(turn, bundle)).count();
        pulses.mark(Place(5));
        assert_eq!(tell(1), 1);
        // Redis has turned the ring, and the next snapshot will say so.
        pulses.mark(Place(5));
        assert_eq!(tell(2), 1);
        assert_eq!(tell(3), 0, "one poll counts once");
    }

    #[test]
    fn a_poll_that_was_known_does_not_count_for_the_next_turn() {
        let pulses = Pulses::default();
        let tell = |turn| pulses.due(turn, &(0..0)).iter().inspect(|bundle| pulses.arrived(turn, bundle)).count();
        for _ in 0..2 {
            pulses.mark(Place(5));
            tell(1);
        }
        assert_eq!(tell(2), 0);
    }

    #[test]
    fn a_bundle_that_did_not_arrive_stays_due() {
        let pulses = Pulses::default();
        pulses.mark(Place(5));
        assert_eq!(pulses.due(1, &(0..0)).len(), 1);
        assert_eq!(pulses.due(2, &(0..0)).len(), 1);
    }
}
