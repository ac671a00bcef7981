//! Random numbers that are the same on every machine.

/// `SplitMix64`: small, and good enough to choose steps.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Two seeds give two unrelated sequences.
    pub fn new(seed: u64, life: u64) -> Self {
        let mut of_seed = Self(seed);
        Self(of_seed.next().wrapping_add(Self(!life).next()))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Whether something happens that happens `of` times in a hundred.
    pub fn percent(&mut self, of: u64) -> bool {
        self.below(100) < of
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
