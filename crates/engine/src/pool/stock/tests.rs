//! Shelves with numbers on them instead of sandboxes.

use super::*;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sort {
    tenant: u128,
    name: u32,
}

impl Kind for Sort {
    fn tenant(&self) -> TenantId {
        TenantId::from_bits(self.tenant)
    }

    fn memory(&self) -> u64 {
        1 << 20
    }
}

#[derive(Debug)]
struct Thing {
    number: usize,
    dead: bool,
}

impl Entry for Thing {
    fn is_dead(&mut self) -> bool {
        self.dead
    }
}

/// A pool in which time passes when told to, and fills take none.
struct World {
    stock: Stock<Sort, Thing>,
    now: Instant,
    made: usize,
    evicted: Vec<(usize, Why)>,
}

impl World {
    fn new(entries: usize) -> Self {
        let rules = Rules {
            bounds: Bounds { entries, memory: 1 << 40 },
            max_age: Duration::from_secs(100),
            at_once: 2,
        };
        Self { stock: Stock::new(rules), now: Instant::now(), made: 0, evicted: Vec::new() }
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    fn take(&mut self, tenant: u128, name: u32) -> Option<usize> {
        self.stock.take(&sort(tenant, name), self.now).map(|(thing, _)| thing.number)
    }

    fn begin(&mut self, waiting: usize) -> Vec<Arc<Sort>> {
        let work = self.stock.work(self.now, waiting);
        self.evicted.extend(work.evict.into_iter().map(|(_, thing, why)| (thing.number, why)));
        work.fill
    }

    fn finish(&mut self, fills: Vec<Arc<Sort>>) {
        for kind in fills {
            self.made += 1;
            let thing = Thing { number: self.made, dead: false };
            self.stock.put(&kind, thing, Duration::from_millis(3), self.now);
        }
    }

    /// Fills until there is nothing to fill, and gives how many that were.
    fn settle(&mut self) -> usize {
        self.pass(0.06);
        let before = self.made;
        loop {
            let fills = self.begin(0);
            if fills.is_empty() {
                return self.made - before;
            }
            self.finish(fills);
        }
    }

    fn ready(&self, tenant: u128) -> usize {
        let ours = self.stock.shelves().filter(|(kind, _)| kind.tenant == tenant);
        ours.map(|(_, shelf)| shelf.ready()).sum()
    }
}

fn sort(tenant: u128, name: u32) -> Arc<Sort> {
    Arc::new(Sort { tenant, name })
}

#[test]
fn the_first_of_a_kind_misses_and_the_next_one_hits() {
    let mut world = World::new(100);
    assert_eq!(world.take(1, 1), None);
    assert_eq!(world.settle(), 1);
    assert_eq!(world.take(1, 1), Some(1));
    // Of another kind or another tenant's it is not.
    assert_eq!((world.take(1, 2), world.take(2, 1)), (None, None));
}

#[test]
fn nothing_is_given_twice() {
    let mut world = World::new(100);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..500 {
        if let Some(number) = world.take(1, 1) {
            assert!(seen.insert(number));
        }
        world.settle();
    }
    assert!(seen.len() > 400);
}

#[test]
fn requests_that_wait_leave_one_fill_at_a_time() {
    let mut world = World::new(100);
    for _ in 0..20 {
        world.take(1, 1);
    }
    let first = world.begin(16);
    assert_eq!(first.len(), 1);
    assert!(world.begin(16).is_empty());
    assert_eq!(world.begin(0).len(), 1);
    assert!(world.begin(0).is_empty());
}

#[test]
fn fills_stop_at_the_target_and_begin_at_half_of_it() {
    let mut world = World::new(100);
    for _ in 0..20 {
        world.take(1, 1);
    }
    assert_eq!(world.settle(), 20);
    for _ in 0..9 {
        assert!(world.take(1, 1).is_some());
    }
    assert_eq!(world.begin(0).len(), 0);
    assert!(!world.stock.needs_work(&sort(1, 1), world.now));
    world.take(1, 1);
    assert!(world.stock.needs_work(&sort(1, 1), world.now));
    assert!(world.settle() >= 10);
}

#[test]
fn a_flood_neither_fills_nor_drains_what_others_have() {
    let mut world = World::new(40);
    for _ in 0..1000 {
        world.take(1, 1);
    }
    world.settle();
    assert_eq!(world.ready(1), 40);
    for _ in 0..5 {
        world.take(2, 1);
    }
    world.settle();
    assert_eq!((world.ready(1), world.ready(2)), (35, 5));
    for _ in 0..1000 {
        world.take(1, 1);
    }
    assert_eq!((world.ready(1), world.ready(2)), (0, 5));
    // While the flood goes on, whoever takes little is served in turn.
    for _ in 0..5 {
        assert!(world.take(2, 1).is_some());
    }
    world.pass(0.06);
    let mut fills = Vec::new();
    for _ in 0..6 {
        let next = world.begin(9);
        assert_eq!(next.len(), 1);
        fills.push(next[0].tenant);
        world.finish(next);
        world.take(1, 1);
    }
    assert_eq!(fills.iter().filter(|tenant| **tenant == 2).count(), 3, "{fills:?}");
}

#[test]
fn other_kinds_each_time_do_not_make_us_work_for_nothing() {
    let mut world = World::new(1000);
    for name in 0..200 {
        world.take(1, name);
        world.settle();
    }
    assert!(world.made <= UNPROVEN, "{} were made", world.made);
    assert!(world.stock.shelves().count() <= MOST_OF_TENANT);
}

#[test]
fn all_tenants_together_are_bounded() {
    let mut world = World::new(10_000);
    for tenant in 0..1000 {
        world.take(tenant, 1);
    }
    assert_eq!(world.stock.shelves().count(), MOST_KINDS);
}

#[test]
fn what_is_old_is_replaced_before_it_goes() {
    let mut world = World::new(100);
    world.take(1, 1);
    world.take(1, 1);
    assert_eq!(world.settle(), 2);
    world.pass(81.0);
    assert_eq!(world.settle(), 2);
    world.begin(0);
    assert_eq!(world.evicted, [(1, Why::Age), (2, Why::Age)]);
    assert_eq!(world.ready(1), 2);
}

#[test]
fn what_is_too_old_is_never_given() {
    let mut world = World::new(100);
    world.take(1, 1);
    world.settle();
    world.pass(101.0);
    assert_eq!(world.take(1, 1), None);
    world.begin(0);
    assert_eq!(world.evicted, [(1, Why::Age)]);
}

#[test]
fn a_kind_that_nobody_asks_for_any_more_is_let_go() {
    let mut world = World::new(100);
    world.take(1, 1);
    world.take(1, 1);
    world.settle();
    for _ in 0..700 {
        world.pass(1.0);
        world.settle();
    }
    assert!(world.stock.is_empty() && world.ready(1) == 0);
    assert!(world.made < 20, "{}", world.made);
}

#[test]
fn the_dead_are_not_given_and_are_replaced() {
    let mut world = World::new(100);
    for _ in 0..4 {
        world.take(1, 1);
    }
    world.settle();
    for shelf in world.stock.shelves.values_mut() {
        shelf.ready[0].1.dead = true;
        shelf.ready[3].1.dead = true;
    }
    assert_eq!(world.take(1, 1), Some(2));
    world.begin(0);
    assert_eq!(world.evicted, [(1, Why::Death), (4, Why::Death)]);
}

#[test]
fn fills_that_fail_are_tried_less_and_less_often() {
    let mut world = World::new(100);
    world.take(1, 1);
    let mut tries = 0;
    for _ in 0..6000 {
        for kind in world.begin(0) {
            tries += 1;
            world.stock.fail(&kind, world.now);
        }
        world.pass(0.1);
    }
    assert!((10..30).contains(&tries), "{tries}");
}

#[test]
fn a_drained_pool_takes_and_gives_nothing() {
    let mut world = World::new(100);
    world.take(1, 1);
    world.take(1, 1);
    world.settle();
    world.take(1, 1);
    let fills = world.begin(0);
    assert_eq!(fills.len(), 1);
    assert_eq!(world.stock.drain().len(), 1);
    // A fill that was under way comes to its end.
    world.finish(fills);
    assert!(world.begin(0).is_empty());
    assert_eq!(world.evicted, [(3, Why::Drain)]);
    assert_eq!(world.take(1, 1), None);
}

#[test]
fn somebody_who_needs_the_place_gets_it_from_the_fullest_shelf() {
    let mut world = World::new(100);
    world.take(1, 1);
    for _ in 0..5 {
        world.take(2, 1);
    }
    world.settle();
    assert!(world.stock.spare().is_some());
    assert_eq!((world.ready(1), world.ready(2)), (1, 4));
}
