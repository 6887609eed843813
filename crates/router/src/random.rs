//! Chance that can be repeated: the same seed gives the same draws on every machine.

use serde::{Deserialize, Serialize};

/// A small generator (splitmix64). Good enough for choosing whom to probe; useless for secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random {
    state: u64,
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for each tuple of numbers, so that one draw does not depend on how many came before.
    pub fn of(parts: &[u64]) -> Self {
        let mut random = Self::new(0x5d58_8b65_6c07_8965);
        for part in parts {
            random.state ^= part.wrapping_mul(0xff51_afd7_ed55_8ccd);
            random.state = random.draw();
        }
        random
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and less than 1.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        // Never 0, whose logarithm is none.
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }

    /// From the beta distribution: a probability of which `hits` and `misses` have been seen.
    pub fn beta(&mut self, hits: f64, misses: f64) -> f64 {
        let (hits, misses) = (self.gamma(hits), self.gamma(misses));
        if hits + misses > 0.0 { hits / (hits + misses) } else { 0.5 }
    }

    /// By Marsaglia and Tsang's method; a shape below 1 is one step up, brought down again.
    fn gamma(&mut self, shape: f64) -> f64 {
        let shape = shape.max(1e-3);
        if shape < 1.0 {
            let power = (1.0 - self.share()).powf(1.0 / shape);
            return self.gamma(shape + 1.0) * power;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let cubed = (1.0 + c * normal).powi(3);
            let accept = 0.5 * normal * normal + d - d * cubed;
            if cubed > 0.0 && (1.0 - self.share()).ln() < accept + d * cubed.ln() {
                return d * cubed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: usize, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / count as f64
    }

    #[test]
    fn the_same_seed_gives_the_same_draws() {
        let draws = |seed| (0..4).map(|_| Random::new(seed).draw()).collect::<Vec<_>>();
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        assert_eq!(Random::of(&[1, 2]), Random::of(&[1, 2]));
        assert_ne!(Random::of(&[1, 2]), Random::of(&[2, 1]));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(7);
        assert!((mean(20_000, || random.share()) - 0.5).abs() < 0.01);
        assert!(mean(20_000, || random.normal()).abs() < 0.03);
        let square = mean(20_000, || random.normal().powi(2));
        assert!((square - 1.0).abs() < 0.05, "{square}");
        for (hits, misses) in [(0.2, 3.8), (1.0, 1.0), (30.0, 10.0)] {
            let (found, expected) = (mean(20_000, || random.beta(hits, misses)), hits / (hits + misses));
            assert!((found - expected).abs() < 0.02, "{found} for {expected}");
        }
    }
}
