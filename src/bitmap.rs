//! Places as bits. Bit order is that of Redis: place `base` is the highest bit of the first byte.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::ids::Place;

/// A bitmap of the line with a running count per word: any rank costs one popcount.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    base: u32,
    bytes: Vec<u8>,
    /// Set bits before each 64-bit word.
    before: Vec<u32>,
    count: u32,
}

impl Ranked {
    pub fn new(base: u32, bytes: Vec<u8>) -> Self {
        let mut ranked = Self { base, bytes, before: Vec::new(), count: 0 };
        ranked.recount();
        ranked
    }

    /// The same with some stretches replaced, each given with the offset of its first byte.
    pub fn patched(&self, stretches: &[(usize, &[u8])]) -> Self {
        let mut bytes = self.bytes.clone();
        for (offset, stretch) in stretches {
            let end = offset + stretch.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            if let Some(target) = bytes.get_mut(*offset..end) {
                target.copy_from_slice(stretch);
            }
        }
        Self::new(self.base, bytes)
    }

    fn recount(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.before.clear();
        self.before.reserve(self.bytes.len() / 8);
        let mut count = 0;
        for word in self.bytes.as_chunks::<8>().0 {
            self.before.push(count);
            count += u64::from_ne_bytes(*word).count_ones();
        }
        self.count = count;
    }

    pub fn base(&self) -> u32 {
        self.base
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many places are set.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    pub fn contains(&self, place: Place) -> bool {
        self.word_of(place).is_some_and(|(_, word, shift)| (word >> shift) & 1 == 1)
    }

    /// How many places are set up to and including this one.
    pub fn rank(&self, place: Place) -> u64 {
        if place.0 < self.base {
            return 0;
        }
        match self.word_of(place) {
            Some((before, word, shift)) => u64::from(before + (word >> shift).count_ones()),
            None => self.count(),
        }
    }

    fn word_of(&self, place: Place) -> Option<(u32, u64, u32)> {
        let at = place.0.checked_sub(self.base)?;
        let index = (at / 64) as usize;
        let word = u64::from_be_bytes(*self.bytes.as_chunks::<8>().0.get(index)?);
        Some((*self.before.get(index)?, word, 63 - at % 64))
    }
}

const CHUNK_PLACES: usize = 1 << 20;
const CHUNK_WORDS: usize = CHUNK_PLACES / 64;
const CHUNKS: usize = (1 << 32) / CHUNK_PLACES;
/// From so many places of a chunk on, Redis takes in a bitmap faster than a list.
const DENSE: usize = 300;
/// Most neighbouring chunks that travel as one bitmap: 4 MB.
const DENSE_CHUNKS: usize = 32;
/// Most places one call lists.
const LISTED: usize = 1000;

/// Who was heard from since the ring of slices last turned. Marking is lock-free; [`Pulses::due`] says what Redis has
/// not been told yet.
pub struct Pulses {
    heard: Vec<OnceLock<Box<[AtomicU64]>>>,
    sent: Mutex<Sent>,
}

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
        Self { heard: (0..CHUNKS).map(|_| OnceLock::new()).collect(), sent: Mutex::default() }
    }
}

impl Pulses {
    pub fn mark(&self, place: Place) {
        let at = place.0 as usize;
        let Some(slot) = self.heard.get(at / CHUNK_PLACES) else { return };
        let chunk = slot.get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect());
        let Some(word) = chunk.get(at % CHUNK_PLACES / 64) else { return };
        let bit = 1 << (63 - at % 64);
        // Most polls find the bit set: reading first keeps the line of cache shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// What Redis has not been told in this turn of the ring. Places in `listed` (the gap) are always listed singly.
    pub fn due(&self, turn: u64, listed: &std::ops::Range<u32>) -> Vec<Bundle> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.turn != turn {
            self.forget(&sent.chunks);
            *sent = Sent { turn, chunks: HashMap::new() };
        }
        let mut bundles = Bundles { listed: listed.clone(), ..Bundles::default() };
        for (index, slot) in self.heard.iter().enumerate() {
            let Some(heard) = slot.get() else { continue };
            let known = sent.chunks.get(&index);
            let known = |at: usize| known.and_then(|words| words.get(at)).copied().unwrap_or(0);
            let news = heard.iter().enumerate().filter_map(|(at, word)| {
                let new = word.load(Ordering::Relaxed) & !known(at);
                (new != 0).then_some((index, at, new))
            });
            bundles.add(news.collect());
        }
        bundles.finish()
    }

    /// Remembers that a bundle has arrived, so that it is not sent again in this turn.
    pub fn arrived(&self, turn: u64, bundle: &Bundle) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.turn != turn {
            return;
        }
        for (index, at, bits) in &bundle.words {
            let chunk = sent.chunks.entry(*index).or_insert_with(|| vec![0; CHUNK_WORDS]);
            if let Some(word) = chunk.get_mut(*at) {
                *word |= bits;
            }
        }
    }

    /// A new turn: who was told about has to be heard from again; who was not told about yet stays due.
    fn forget(&self, told: &HashMap<usize, Vec<u64>>) {
        for (index, words) in told {
            let Some(heard) = self.heard.get(*index).and_then(OnceLock::get) else { continue };
            for (word, told) in heard.iter().zip(words) {
                word.fetch_and(!told, Ordering::Relaxed);
            }
        }
    }
}

/// Packs news: as bitmaps where they are dense, as lists elsewhere and in the gap.
#[derive(Default)]
struct Bundles {
    listed: std::ops::Range<u32>,
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
            let in_gap = first < self.listed.end && first.saturating_add(64) > self.listed.start;
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
    use proptest::prelude::*;

    fn bitmap(base: u32, places: &[u32]) -> Vec<u8> {
        let length = places.iter().max().map_or(0, |last| (last - base) / 8 + 1);
        let mut bytes = vec![0; length as usize];
        for place in places {
            let at = place - base;
            bytes[(at / 8) as usize] |= 0x80 >> (at % 8);
        }
        bytes
    }

    /// All places a bundle tells of.
    fn places(bundle: &Bundle) -> Vec<u32> {
        let marked = Ranked::new(bundle.from, bundle.dense.clone());
        let dense = (0..bundle.dense.len() as u32 * 8).map(|at| bundle.from + at);
        let dense = dense.filter(|place| marked.contains(Place(*place)));
        dense.chain(bundle.places.iter().copied()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_rank_is_the_number_of_places_up_to_it(base in 0u32..3, places in prop::collection::btree_set(0u32..700, 0..90)) {
            let base = base << 20;
            let places: Vec<u32> = places.into_iter().map(|place| base + place).collect();
            let ranked = Ranked::new(base, bitmap(base, &places));
            prop_assert_eq!(ranked.count() as usize, places.len());
            for place in base.saturating_sub(1)..base + 800 {
                let expected = places.iter().filter(|other| **other <= place).count();
                prop_assert_eq!(ranked.rank(Place(place)) as usize, expected);
                prop_assert_eq!(ranked.contains(Place(place)), places.contains(&place));
            }
        }

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
    fn a_patch_changes_only_its_stretch() {
        let whole = Ranked::new(0, vec![0xff; 100]);
        let patched = whole.patched(&[(10, &[0, 0]), (120, &[0x80])]);
        assert_eq!(patched.count(), 800 - 16 + 1);
        assert!(!patched.contains(Place(80)) && patched.contains(Place(96)) && patched.contains(Place(960)));
    }

    #[test]
    fn a_crowd_travels_as_a_bitmap_and_the_gap_as_a_list() {
        let pulses = Pulses::default();
        (0..100_000).for_each(|place| pulses.mark(Place(place)));
        let bundles = pulses.due(1, &(64_000..64_128));
        let dense: Vec<_> = bundles.iter().filter(|bundle| !bundle.dense.is_empty()).collect();
        assert_eq!(dense.len(), 1);
        let marked = Ranked::new(dense[0].from, dense[0].dense.clone());
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
    fn a_bundle_that_did_not_arrive_stays_due() {
        let pulses = Pulses::default();
        pulses.mark(Place(5));
        assert_eq!(pulses.due(1, &(0..0)).len(), 1);
        assert_eq!(pulses.due(2, &(0..0)).len(), 1);
    }
}
