//! What a finished sandbox costs.

use std::time::Duration;

use sandstorm_types::{ByteSize, MilliCpus};
use serde::Serialize;
use thiserror::Error;

use crate::{Demand, Extras, PriceModel, ProviderEntry, Size, Usd};

const HOUR_MICROS: u128 = 3_600_000_000;
const SECOND_MICROS: u128 = 1_000_000;

/// What a sandbox used, as far as a bill depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub demand: Demand,
    /// From its creation to its end, without the time that it was paused.
    pub wall: Duration,
    /// Of all its processes.
    pub cpu: Duration,
    /// Most memory at once, where it was measured.
    pub peak_memory: Option<ByteSize>,
    pub egress: ByteSize,
    /// Whether the caller insisted on a region.
    pub pinned_region: bool,
}

impl Usage {
    /// One that did no more than run.
    pub fn of(demand: &Demand, wall: Duration, cpu: Duration) -> Self {
        let (demand, egress) = (demand.clone(), ByteSize::default());
        Self { demand, wall, cpu, peak_memory: None, egress, pinned_region: false }
    }
}

/// A bill, by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Charge {
    /// Processors, memory and accelerators; never below the least that the provider bills.
    pub compute: Usd,
    pub creation: Usd,
    pub disk: Usd,
    pub egress: Usd,
}

impl Charge {
    pub fn total(&self) -> Usd {
        self.compute + self.creation + self.disk + self.egress
    }
}

/// Why there is no figure.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChargeError {
    #[error("the price of {0} is not known: the operator has to set it")]
    Unknown(String),
    #[error("{0} makes no sandbox of {1} CPUs and {2}")]
    TooLarge(String, MilliCpus, ByteSize),
    #[error("{0} has no price for the accelerator {1}")]
    NoSuchGpu(String, String),
}

impl ProviderEntry {
    /// What `usage` costs here by the list.
    pub fn charge(&self, usage: &Usage) -> Result<Charge, ChargeError> {
        let surcharge = self.billing().pinned_region_permille.map(|(least, _)| least);
        self.charge_by(&self.price.figure, usage, surcharge.filter(|_| usage.pinned_region))
    }

    pub(crate) fn charge_by(
        &self,
        model: &PriceModel,
        usage: &Usage,
        region_permille: Option<u32>,
    ) -> Result<Charge, ChargeError> {
        let wanted = usage.demand.size();
        let too_large = || ChargeError::TooLarge(self.id.clone(), wanted.cpus, wanted.memory);
        let sizes = self.sizes.as_ref().map(|dated| &dated.figure);
        let size = sizes.map_or(Some(wanted), |sizes| sizes.fit(wanted)).ok_or_else(too_large)?;
        let billing = self.billing();
        let step = |span: Duration| in_steps(span, billing.granularity);
        let wall = step(usage.wall.max(billing.minimum_time.unwrap_or_default()));
        let measured = Measured { size, wall, cpu: step(usage.cpu), peak_memory: usage.peak_memory };
        let mut compute = measured.priced(model).map_err(|unpriced| match unpriced {
            Unpriced::Unknown => ChargeError::Unknown(self.id.clone()),
            Unpriced::TooLarge => too_large(),
        })?;
        if let Some(kind) = &usage.demand.gpu {
            let second = self.extras().gpu_second.and_then(|kinds| kinds.get(kind).copied());
            let second = second.ok_or_else(|| ChargeError::NoSuchGpu(self.id.clone(), kind.clone()))?;
            compute += second.for_each(wall.as_micros(), SECOND_MICROS);
        }
        if let Some(permille) = region_permille {
            compute = compute.permille(permille);
        }
        let extras = self.extras();
        Ok(Charge {
            compute: compute.max(billing.minimum_charge.unwrap_or_default()),
            creation: billing.creation_fee.unwrap_or_default(),
            disk: disk(&extras, usage.demand.disk, wall),
            egress: extras.egress_gib.unwrap_or_default().for_each(usage.egress.as_u64().into(), GIB),
        })
    }

    fn extras(&self) -> Extras {
        self.extras.as_ref().map(|dated| dated.figure.clone()).unwrap_or_default()
    }
}

const GIB: u128 = 1 << 30;

fn disk(extras: &Extras, disk: ByteSize, wall: Duration) -> Usd {
    let free = ByteSize::gib(extras.disk_free_gib.unwrap_or(0).into());
    let billed = disk.as_u64().saturating_sub(free.as_u64());
    extras
        .disk_gib_second
        .unwrap_or_default()
        .for_each(u128::from(billed) * wall.as_micros(), GIB * SECOND_MICROS)
}

fn in_steps(span: Duration, step: Option<Duration>) -> Duration {
    let Some(step) = step.filter(|step| !step.is_zero()) else { return span };
    let steps = span.as_nanos().div_ceil(step.as_nanos());
    u32::try_from(steps).ok().and_then(|steps| step.checked_mul(steps)).unwrap_or(span)
}

enum Unpriced {
    Unknown,
    TooLarge,
}

/// What a model is applied to.
struct Measured {
    size: Size,
    wall: Duration,
    cpu: Duration,
    peak_memory: Option<ByteSize>,
}

impl Measured {
    fn priced(&self, model: &PriceModel) -> Result<Usd, Unpriced> {
        let Size { cpus, memory } = self.size;
        // In thousandths of a processor times microseconds, as the request is.
        let (requested, used) = (self.cpu_micros(cpus), self.cpu.as_micros() * 1000);
        Ok(match model {
            PriceModel::Allocated { vcpu_second, gib_second } => {
                cpu(*vcpu_second, requested) + self.memory(*gib_second, memory)
            }
            PriceModel::ActiveCpu { vcpu_second, gib_second } => {
                cpu(*vcpu_second, used) + self.memory(*gib_second, memory)
            }
            PriceModel::MaxOfRequestAndActual { vcpu_second, gib_second } => {
                let memory = memory.max(self.peak_memory.unwrap_or_default());
                cpu(*vcpu_second, requested.max(used)) + self.memory(*gib_second, memory)
            }
            PriceModel::BundledByMemory { gib_second, cpus_per_gib } => {
                let with_cpus = u128::from(cpus.milli()) * GIB / u128::from(cpus_per_gib.milli().max(1));
                let memory = u128::from(memory.as_u64()).max(with_cpus);
                gib_second.for_each(memory * self.wall.as_micros(), GIB * SECOND_MICROS)
            }
            PriceModel::Tiers { .. } => {
                let tier = model.tier(self.size).ok_or(Unpriced::TooLarge)?;
                tier.hour.for_each(self.wall.as_micros(), HOUR_MICROS)
            }
            PriceModel::Units { unit, unit_minute } => {
                let by_cpus = u64::from(cpus.milli()).div_ceil(u64::from(unit.cpus.milli().max(1)));
                let by_memory = memory.as_u64().div_ceil(unit.memory.as_u64().max(1));
                let units = u128::from(by_cpus.max(by_memory).max(1));
                unit_minute.for_each(units * self.wall.as_micros(), 60 * SECOND_MICROS)
            }
            PriceModel::Owned { vcpu_hour, gib_hour } => {
                let memory = u128::from(memory.as_u64()) * self.wall.as_micros();
                vcpu_hour.for_each(requested, 1000 * HOUR_MICROS)
                    + gib_hour.for_each(memory, GIB * HOUR_MICROS)
            }
            PriceModel::Unknown {} => return Err(Unpriced::Unknown),
        })
    }

    fn cpu_micros(&self, cpus: MilliCpus) -> u128 {
        u128::from(cpus.milli()) * self.wall.as_micros()
    }

    fn memory(&self, gib_second: Usd, memory: ByteSize) -> Usd {
        gib_second.for_each(u128::from(memory.as_u64()) * self.wall.as_micros(), GIB * SECOND_MICROS)
    }
}

fn cpu(vcpu_second: Usd, milli_micros: u128) -> Usd {
    vcpu_second.for_each(milli_micros, 1000 * SECOND_MICROS)
}

#[cfg(test)]
mod tests;
