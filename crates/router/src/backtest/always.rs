//! The baseline: one provider for everything. A failed attempt costs its time and is a failure.

use super::figures::Collected;
use super::options::Options;
use super::world::{Drawn, World, WorldDay};

pub(super) struct Always<'a> {
    provider: &'a str,
    seed: u64,
    failure_ms: f64,
    work_ms: f64,
}

impl<'a> Always<'a> {
    pub(super) fn new(provider: &'a str, seed: u64, options: &Options) -> Self {
        let ms = |span: std::time::Duration| span.as_secs_f64() * 1000.0;
        Self { provider, seed, failure_ms: ms(options.failure_time), work_ms: ms(options.work) }
    }

    /// Days on which the provider was not measured are left out.
    pub(super) fn serve(&self, world: &World, day: &WorldDay, drawn: Drawn, collected: &mut Collected) {
        if !day.providers.contains_key(self.provider) {
            return;
        }
        match world.attempt(self.seed, day, self.provider, drawn) {
            Some(ms) => collected.request(ms, true, 1, world.cost(self.provider, ms + self.work_ms)),
            None => {
                collected.request(self.failure_ms, false, 1, world.cost(self.provider, self.failure_ms));
            }
        }
    }
}
