//! Ranks: the line as a bitmap. The bit order is that of Redis: place `base` is the highest bit of the first byte.

use crate::base::ids::Place;

/// A bitmap of the line with a running count per word: any rank costs one popcount.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    base: u64,
    bytes: Vec<u8>,
    /// Set bits before each 64-bit word.
    before: Vec<u32>,
    count: u32,
}

impl Ranked {
    pub fn new(base: u64, bytes: Vec<u8>) -> Self {
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

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first place that is set.
    pub fn first(&self) -> Option<u64> {
        let index = self.bytes.iter().position(|byte| *byte != 0)?;
        let byte = self.bytes.get(index)?;
        Some(self.base + index as u64 * 8 + u64::from(byte.leading_zeros()))
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
        if u64::from(place.0) < self.base {
            return 0;
        }
        match self.word_of(place) {
            Some((before, word, shift)) => u64::from(before + (word >> shift).count_ones()),
            None => self.count(),
        }
    }

    fn word_of(&self, place: Place) -> Option<(u32, u64, u32)> {
        let at = u64::from(place.0).checked_sub(self.base)?;
        let index = usize::try_from(at / 64).ok()?;
        let word = u64::from_be_bytes(*self.bytes.as_chunks::<8>().0.get(index)?);
        Some((*self.before.get(index)?, word, 63 - (at % 64) as u32))
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_rank_is_the_number_of_places_up_to_it(base in 0u32..3, places in prop::collection::btree_set(0u32..700, 0..90)) {
            let base = base << 20;
            let places: Vec<u32> = places.into_iter().map(|place| base + place).collect();
            let ranked = Ranked::new(base.into(), bitmap(base, &places));
            prop_assert_eq!(ranked.count() as usize, places.len());
            prop_assert_eq!(ranked.first(), places.first().map(|place| u64::from(*place)));
            for place in base.saturating_sub(1)..base + 800 {
                let expected = places.iter().filter(|other| **other <= place).count();
                prop_assert_eq!(ranked.rank(Place(place)) as usize, expected);
                prop_assert_eq!(ranked.contains(Place(place)), places.contains(&place));
            }
        }
    }

    #[test]
    fn a_patch_changes_only_its_stretch() {
        let whole = Ranked::new(0, vec![0xff; 100]);
        let patched = whole.patched(&[(10, &[0, 0]), (120, &[0x80])]);
        assert_eq!(patched.count(), 800 - 16 + 1);
        assert!(!patched.contains(Place(80)) && patched.contains(Place(96)) && patched.contains(Place(960)));
    }
}
