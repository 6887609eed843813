//! Who gets how much of the pool. Pure.
//!
//! There are two bounds, on entries and on memory. Both become one: an entry costs the larger part that it takes of either.
//! Tenants share alike, so that one that wants everything gets what the others leave.

use std::collections::BTreeMap;

use sandstorm_types::TenantId;

/// How much there may be in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) entries: usize,
    pub(crate) memory: u64,
}

/// What one kind of sandbox would have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) tenant: TenantId,
    pub(crate) target: usize,
    /// Of one entry.
    pub(crate) memory: u64,
}

/// How many entries each may have. Where there is too little for one each, those that come first get one.
pub(crate) fn allot(wants: &[Want], bounds: Bounds) -> Vec<usize> {
    let costs: Vec<f64> = wants.iter().map(|want| cost(want.memory, bounds)).collect();
    let wanted: Vec<f64> = wants.iter().zip(&costs).map(|(want, cost)| want.target as f64 * cost).collect();
    let mut tenants: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
    for (n, want) in wants.iter().enumerate() {
        tenants.entry(want.tenant).or_default().push(n);
    }
    let of_tenants: Vec<f64> = tenants.values().map(|all| all.iter().map(|n| wanted[*n]).sum()).collect();
    let mut given = vec![0; wants.len()];
    for (all, share) in tenants.values().zip(level(&of_tenants, 1.0)) {
        let of_kinds: Vec<f64> = all.iter().map(|n| wanted[*n]).collect();
        for (n, share) in all.iter().zip(level(&of_kinds, share)) {
            // A hair more, since what was divided and multiplied again may have lost one.
            given[*n] = ((share / costs[*n] + 1e-9) as usize).min(wants[*n].target);
        }
    }
    give_rest(wants, &costs, &mut given);
    given
}

/// What rounding left goes to those who have least, one each.
fn give_rest(wants: &[Want], costs: &[f64], given: &mut [usize]) {
    let mut left = 1.0 - given.iter().zip(costs).map(|(count, cost)| *count as f64 * cost).sum::<f64>();
    let mut order: Vec<usize> = (0..wants.len()).filter(|n| given[*n] < wants[*n].target).collect();
    order.sort_by_key(|n| given[*n]);
    for n in order {
        if costs[n] <= left + 1e-9 {
            given[n] += 1;
            left -= costs[n];
        }
    }
}

fn cost(memory: u64, bounds: Bounds) -> f64 {
    let by_count = 1.0 / bounds.entries.max(1) as f64;
    by_count.max(memory as f64 / bounds.memory.max(1) as f64)
}

/// Shares `amount` so that nobody gets more than wanted, and nobody less than anybody else unless content with it.
fn level(wanted: &[f64], amount: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut given = vec![0.0; wanted.len()];
    let mut left = amount;
    for (done, n) in order.into_iter().enumerate() {
        given[n] = wanted[n].min(left / (wanted.len() - done) as f64);
        left -= given[n];
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(n: u128) -> TenantId {
        TenantId::from_bits(n)
    }

    fn want(of: u128, target: usize) -> Want {
        Want { tenant: tenant(of), target, memory: 1 << 20 }
    }

    const WIDE: Bounds = Bounds { entries: 100, memory: 1 << 40 };

    #[test]
    fn everybody_is_content_when_there_is_enough() {
        assert_eq!(allot(&[want(1, 30), want(1, 5), want(2, 60)], WIDE), [30, 5, 60]);
        assert_eq!(allot(&[], WIDE), Vec::<usize>::new());
        assert_eq!(allot(&[want(1, 0)], WIDE), [0]);
    }

    #[test]
    fn a_flood_of_one_tenant_leaves_the_others_theirs() {
        assert_eq!(allot(&[want(1, 10_000), want(2, 10)], WIDE), [90, 10]);
        // Many kinds are no way to a larger share either.
        let mut wants = vec![want(1, 1_000); 50];
        wants.push(want(2, 1_000));
        let given = allot(&wants, WIDE);
        assert_eq!((given[..50].iter().sum::<usize>(), given[50]), (50, 50));
    }

    #[test]
    fn memory_bounds_as_well() {
        let bounds = Bounds { entries: 100, memory: 64 << 20 };
        let large = Want { memory: 8 << 20, ..want(1, 100) };
        assert_eq!(allot(&[large], bounds), [8]);
        assert_eq!(allot(&[large, want(2, 100)], bounds), [4, 32]);
        assert_eq!(allot(&[Want { memory: 65 << 20, ..large }], bounds), [0]);
    }

    #[test]
    fn more_tenants_than_places_leave_no_place_empty() {
        let wants: Vec<Want> = (0..300).map(|n| want(n, 2)).collect();
        let given = allot(&wants, WIDE);
        assert_eq!(given.iter().sum::<usize>(), 100);
        assert!(given[..100].iter().all(|count| *count == 1));
    }

    #[test]
    fn bounds_hold_whatever_is_wanted() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let bounds = Bounds { entries: next(60) as usize + 1, memory: (next(200) + 1) << 20 };
            let wants: Vec<Want> = (0..next(30))
                .map(|_| Want {
                    tenant: tenant(u128::from(next(6))),
                    target: next(50) as usize,
                    memory: next(30 << 20),
                })
                .collect();
            let given = allot(&wants, bounds);
            let memory: u64 = given.iter().zip(&wants).map(|(n, want)| *n as u64 * want.memory).sum();
            assert!(given.iter().sum::<usize>() <= bounds.entries && memory <= bounds.memory, "{wants:?}");
            assert!(given.iter().zip(&wants).all(|(n, want)| *n <= want.target));
        }
    }
}
