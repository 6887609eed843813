//! One run or sandbox, and what it costs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_catalog::{Credit, Demand, Usage};
use sandstorm_router::money::{During, Reservation, SpendFuse};
use sandstorm_store::{EntryKind, LedgerBill, LedgerEntry};
use sandstorm_types::{Attempt, ByteSize, MilliCpus, SandboxId, TenantId, Timestamp, Usd};
use tokio_util::sync::CancellationToken;

use super::Spending;
use super::budgets::Share;

/// What a thing costs, from before it is made until after its end.
#[derive(Debug)]
pub(in super::super) struct Account {
    pub(in super::super) tenant: TenantId,
    pub(super) entry: LedgerEntry,
    pub(super) spending: Arc<Spending>,
    state: Mutex<State>,
    /// Ends a run; a sandbox is ended by whoever looks at it.
    stop: OnceLock<CancellationToken>,
    stopped_by: OnceLock<String>,
}

#[derive(Debug)]
struct State {
    awake_before: Duration,
    awake_since: Option<Instant>,
    /// Where it was made, once that is known.
    place: Option<(String, Option<String>)>,
    cpu: Duration,
    peak_memory: u64,
    /// What attempts cost that came to nothing.
    lost: Usd,
    /// Attempts of what came about nowhere, to be recorded with its end.
    failed: Vec<Tried>,
    shares: Vec<Share>,
    own: Option<(SpendFuse, Reservation)>,
    bill: Option<LedgerBill>,
}

/// An attempt that came to nothing, at a place where something may have been made under this id.
#[derive(Debug, Clone)]
pub(in super::super) struct Tried {
    pub(in super::super) entry: LedgerEntry,
    pub(super) sandbox: SandboxId,
}

/// What was measured of a thing that is over.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Used {
    pub(in super::super) wall: Duration,
    pub(in super::super) cpu: Duration,
    pub(in super::super) peak_memory: u64,
}

impl Account {
    pub(super) fn new(
        tenant: TenantId,
        entry: LedgerEntry,
        spending: Arc<Spending>,
        shares: Vec<Share>,
        own: Option<(SpendFuse, Reservation)>,
    ) -> Self {
        let state = State {
            awake_before: Duration::ZERO,
            awake_since: Some(Instant::now()),
            place: None,
            cpu: Duration::ZERO,
            peak_memory: 0,
            lost: Usd::ZERO,
            failed: Vec::new(),
            shares,
            own,
            bill: None,
        };
        let (stop, stopped_by) = (OnceLock::new(), OnceLock::new());
        Self { tenant, entry, spending, state: Mutex::new(state), stop, stopped_by }
    }

    /// As of a thing that lives already.
    pub(super) fn with_time(self, awake_before: Duration, is_awake: bool) -> Self {
        {
            let mut state = self.state();
            state.awake_before = awake_before;
            state.awake_since = is_awake.then(Instant::now);
        }
        self
    }

    /// Its entry, to be written with the record of its beginning.
    pub(in super::super) fn entry(&self) -> &LedgerEntry {
        &self.entry
    }

    /// The most that it may cost by itself.
    pub(in super::super) fn max_cost(&self) -> Option<Usd> {
        self.entry.max_cost
    }

    /// What ends it when its money is gone.
    pub(in super::super) fn stops(&self, token: CancellationToken) {
        let _ = self.stop.set(token);
    }

    /// The budget that ended it.
    pub(in super::super) fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.get().map(String::as_str)
    }

    /// Ends a run. False: it is a sandbox.
    pub(super) fn stop(&self, why: &str) -> bool {
        let Some(token) = self.stop.get() else { return false };
        let _ = self.stopped_by.set(why.to_owned());
        token.cancel();
        true
    }

    /// Whether anybody has to look at it while it lives.
    pub(super) fn is_limited(&self) -> bool {
        let state = self.state();
        !state.shares.is_empty() || state.own.is_some()
    }

    pub(super) fn pauses(&self) {
        let mut state = self.state();
        if let Some(since) = state.awake_since.take() {
            state.awake_before += since.elapsed();
        }
    }

    pub(super) fn goes_on(&self) {
        self.state().awake_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_awake(&self) -> bool {
        self.state().awake_since.is_some()
    }

    /// Where it was made, and what came before. Gives the attempts that may have cost something.
    pub(in super::super) fn placed(
        &self,
        provider: &str,
        region: Option<String>,
        attempts: &[Attempt],
    ) -> Vec<Tried> {
        self.state().place = Some((provider.to_owned(), region));
        // The last one is where it is.
        let (here, failed) =
            attempts.split_last().map_or((None, &[][..]), |(here, failed)| (Some(here), failed));
        self.tried(failed, here)
    }

    /// It came about nowhere, so that only attempts can have cost anything.
    pub(in super::super) fn gave_up(&self, attempts: &[Attempt]) -> Vec<Tried> {
        let tried = self.tried(attempts, None);
        self.state().failed.clone_from(&tried);
        tried
    }

    /// The attempts of what came about nowhere.
    pub(super) fn failed(&self) -> Vec<Tried> {
        self.state().failed.clone()
    }

    /// One entry for each place at which something may have been made, however often it was asked for there.
    fn tried(&self, failed: &[Attempt], here: Option<&Attempt>) -> Vec<Tried> {
        let mut seen: Vec<(&str, SandboxId)> = Vec::new();
        seen.extend(here.and_then(|here| Some((here.provider.as_str(), here.sandbox?))));
        let mut tried: Vec<Tried> = Vec::new();
        for (attempt, part) in failed.iter().zip(1..) {
            let Some(sandbox) = attempt.sandbox else { continue };
            let place = (attempt.provider.as_str(), sandbox);
            if !seen.contains(&place) {
                seen.push(place);
                tried.push(Tried { entry: self.attempt(attempt, part), sandbox });
            }
        }
        let lost = tried.iter().filter_map(|tried| tried.entry.bill.as_ref()).map(LedgerBill::total).sum();
        self.state().lost = lost;
        tried
    }

    fn attempt(&self, attempt: &Attempt, part: u32) -> LedgerEntry {
        let wall = Duration::try_from_secs_f64(attempt.ms / 1000.0).unwrap_or_default();
        let (used, here) = (Used { wall, ..Used::default() }, self.spending.is_here(&attempt.provider));
        let bill = self.bill_for(&attempt.provider, None, &[used], here, Timestamp::now());
        LedgerEntry {
            part,
            kind: EntryKind::Attempt,
            provider: attempt.provider.clone(),
            region: None,
            estimate: Usd::ZERO,
            max_cost: None,
            bill: Some(bill),
            ..self.entry.clone()
        }
    }

    pub(super) fn sees(&self, cpu: Duration, peak_memory: u64) {
        let mut state = self.state();
        state.cpu = state.cpu.max(cpu);
        state.peak_memory = state.peak_memory.max(peak_memory);
    }

    /// The bill of a sandbox that ends now. Asked again it is the same: what it takes from credits is taken once.
    /// `was_made`: one that never was costs nothing.
    pub(super) fn bill(&self, was_made: bool) -> LedgerBill {
        let used = {
            let state = self.state();
            if let Some(bill) = &state.bill {
                return bill.clone();
            }
            let wall = if was_made { state.awake() } else { Duration::ZERO };
            Used { wall, cpu: state.cpu, peak_memory: state.peak_memory }
        };
        let (provider, region) = self.place();
        let now = Timestamp::now();
        let bill = if was_made {
            let here = self.spending.is_here(&provider);
            self.bill_for(&provider, region, &[used], here, now)
        } else {
            no_bill(provider, region, now)
        };
        self.state().bill.get_or_insert(bill).clone()
    }

    /// The bill of a run that is over. Its money is settled with it.
    pub(in super::super) fn close(&self, used: &Used) -> LedgerBill {
        let (provider, region) = self.place();
        let here = self.spending.is_here(&provider);
        let bill = self.bill_for(&provider, region, &[*used], here, Timestamp::now());
        self.settle(bill.total());
        bill
    }

    /// The same of a run that came about nowhere.
    pub(in super::super) fn close_nowhere(&self) -> LedgerBill {
        let (provider, region) = self.place();
        self.settle(Usd::ZERO);
        no_bill(provider, region, Timestamp::now())
    }

    /// The bill of a sandbox, once it was made out.
    pub(super) fn made_out(&self) -> Option<LedgerBill> {
        self.state().bill.clone()
    }

    /// Gives back what was kept for it, less what it cost.
    pub(super) fn settle(&self, actual: Usd) {
        let mut state = self.state();
        state.own = None;
        let actual = actual + state.lost;
        let shares = std::mem::take(&mut state.shares);
        drop(state);
        if !shares.is_empty() {
            self.spending.budgets().settle(shares, actual);
        }
    }

    /// What it should do, by what it has cost so far, and which budget says so.
    pub(super) fn look(&self) -> (During, Option<String>) {
        let (place, awake) = {
            let state = self.state();
            (state.place.clone(), state.awake())
        };
        let now = Timestamp::now();
        let cost = |wall: Duration| {
            // As if it used all of its processors, which nobody can exclude.
            let cpu = wall.mul_f64(f64::from(self.demand().cpus.milli()) / 1000.0);
            let usage = Usage::of(&self.demand(), wall, cpu);
            let at = |provider: &str| {
                let mut credit = self.spending.credit(provider, now);
                self.spending.prices().bill(provider, &usage, &mut credit).map(|bill| bill.total())
            };
            match &place {
                Some((provider, _)) => at(provider),
                // Nobody knows yet where it is: as if it were where it is dearest.
                None => self.spending.prices().places().filter_map(|(provider, _)| at(provider)).max(),
            }
        };
        let (Some(so_far), Some(minute)) = (cost(awake), cost(awake + Duration::from_secs(60))) else {
            // What has no price any more cannot be kept within a budget.
            return (During::Stop, Some("a price that is not known any more".to_owned()));
        };
        let per_second = minute.saturating_sub(so_far).for_each(1, 60);
        let mut state = self.state();
        let so_far = so_far + state.lost;
        let mut own = During::Continue { ask_again: None };
        if let Some((fuse, reservation)) = &mut state.own {
            own = fuse.during(reservation, so_far, per_second);
        }
        let (shared, which) = self.spending.budgets().during(&mut state.shares, so_far, per_second);
        match (own, shared) {
            (During::Continue { ask_again: one }, During::Continue { ask_again: other }) => {
                (During::Continue { ask_again: [one, other].into_iter().flatten().min() }, None)
            }
            (During::Continue { .. }, end) => (end, which),
            (end, _) => {
                let most = self.entry.max_cost.unwrap_or_default();
                (end, Some(format!("the `max_cost` of {most} USD")))
            }
        }
    }

    /// What all of this costs there. `metered`: these are the figures of whoever ran it.
    pub(super) fn bill_for(
        &self,
        provider: &str,
        region: Option<String>,
        used: &[Used],
        metered: bool,
        now: Timestamp,
    ) -> LedgerBill {
        let mut sum = LedgerBill { metered, ..no_bill(provider.to_owned(), region, now) };
        for used in used {
            // By whole milliseconds, as the ledger has them, so that whoever reads it comes to the same amount. One that
            // was begun counts: what took no time was never there.
            let wall_ms = u64::try_from(used.wall.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            let cpu_ms = u64::try_from(used.cpu.as_millis()).unwrap_or(u64::MAX);
            let (wall, cpu) = (Duration::from_millis(wall_ms), Duration::from_millis(cpu_ms));
            let peak_memory = Some(ByteSize::bytes(used.peak_memory));
            let usage = Usage { peak_memory, ..Usage::of(&self.demand(), wall, cpu) };
            let pay = |credit: &mut Credit| self.spending.prices().bill(provider, &usage, credit);
            let bill = self.spending.pay(provider, now, pay);
            sum.priced &= bill.is_some();
            let bill = bill.unwrap_or_default();
            sum.wall_ms = sum.wall_ms.saturating_add(wall_ms);
            sum.cpu_ms = sum.cpu_ms.saturating_add(cpu_ms);
            sum.peak_memory_bytes = sum.peak_memory_bytes.max(used.peak_memory);
            sum.charge += bill.charge;
            sum.credit += bill.credit;
            sum.margin += bill.margin;
            sum.snapshots += bill.snapshots;
        }
        sum
    }

    fn place(&self) -> (String, Option<String>) {
        let place = self.state().place.clone();
        place.unwrap_or_else(|| (self.entry.provider.clone(), self.entry.region.clone()))
    }

    pub(super) fn demand(&self) -> Demand {
        Demand {
            cpus: MilliCpus::new(u32::try_from(self.entry.cpu_milli).unwrap_or(u32::MAX)),
            memory: ByteSize::bytes(self.entry.memory_bytes),
            disk: ByteSize::default(),
            gpu: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn awake(&self) -> Duration {
        self.awake_before + self.awake_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Account {
    /// What was never begun costs nothing.
    fn drop(&mut self) {
        self.settle(Usd::ZERO);
    }
}

/// The bill of what cost nothing.
pub(super) fn no_bill(provider: String, region: Option<String>, ended_at: Timestamp) -> LedgerBill {
    LedgerBill {
        provider,
        region,
        ended_at,
        wall_ms: 0,
        cpu_ms: 0,
        peak_memory_bytes: 0,
        priced: true,
        metered: true,
        charge: Usd::ZERO,
        credit: Usd::ZERO,
        margin: Usd::ZERO,
        snapshots: Usd::ZERO,
    }
}
