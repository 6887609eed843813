//! One way to serve all requests of a trace.

use super::always::Always;
use super::figures::Collected;
use super::policy::Routed;
use super::world::{Drawn, World, WorldDay};

/// What serves requests.
pub(super) trait Arm {
    /// Between two requests: probes, if there are any.
    fn between(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected);

    fn request(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected);
}

/// Replays all days, and gives what was paid on each.
pub(super) fn replay(world: &World, requests_per_day: u32, arm: &mut dyn Arm) -> Vec<Collected> {
    let replay_day = |day: &WorldDay| {
        let mut collected = Collected::default();
        for number in 0..requests_per_day {
            arm.between(world, day, number, &mut collected);
            arm.request(world, day, number, &mut collected);
        }
        collected
    };
    world.days.iter().map(replay_day).collect()
}

impl Arm for Always<'_> {
    fn between(&mut self, _: &World, _: &WorldDay, _: u32, _: &mut Collected) {}

    fn request(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected) {
        self.serve(world, day, Drawn::Request(number), collected);
    }
}

impl Arm for Routed {
    fn between(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected) {
        self.probe(world, day, number, collected);
    }

    fn request(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected) {
        self.serve(world, day, number, collected);
    }
}
