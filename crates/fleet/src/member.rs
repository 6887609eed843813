//! A provider as a member of the fleet: with its page in the catalogue and what the operator allows there.

use std::sync::Arc;

use sandstorm_catalog::{ProviderEntry, Usd};
use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::{CreateOptions, Provider};
use sandstorm_router::{Candidate, Load};
use sandstorm_types::{SandboxSpec, Unmet};

use crate::portable;

#[derive(Debug, Clone)]
pub struct Member {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) entry: Arc<ProviderEntry>,
    /// The area that its region lies in.
    pub(crate) area: Option<String>,
    /// Most sandboxes at a time; `None` is no limit of the operator's.
    pub(crate) most: Option<u32>,
    pub(crate) free_credit: Usd,
    pub(crate) budget: Option<Usd>,
}

impl Member {
    /// Without limits of the operator's. What the provider does not offer is refused here, not there.
    pub fn new(provider: Arc<dyn Provider>, entry: Arc<ProviderEntry>) -> Self {
        let provider = Arc::new(CapabilityCheck::new(provider));
        Self { provider, entry, area: None, most: None, free_credit: Usd::ZERO, budget: None }
    }

    pub fn in_area(self, area: Option<String>) -> Self {
        Self { area, ..self }
    }

    pub fn with_most(self, most: Option<u32>) -> Self {
        Self { most, ..self }
    }

    pub fn with_free_credit(self, free_credit: Usd) -> Self {
        Self { free_credit, ..self }
    }

    pub fn with_budget(self, budget: Option<Usd>) -> Self {
        Self { budget, ..self }
    }

    pub fn name(&self) -> &str {
        &self.provider.info().name
    }

    /// Why it cannot hold such a sandbox. Of one that is not reached yet nothing else is known.
    fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut unmet = self.provider.admits(spec).err().unwrap_or_default();
        if unmet.iter().any(|one| one.feature == Unmet::CONNECTION) {
            unmet.retain(|one| one.feature == Unmet::CONNECTION);
        }
        unmet
    }

    /// As the router sees it, for this sandbox.
    pub(crate) fn candidate(&self, spec: &SandboxSpec, options: &CreateOptions, in_use: u32) -> Candidate {
        let can = self.provider.capabilities();
        let spec = portable::spec(can, spec, options);
        let mut candidate = Candidate::new(self.name(), can, Arc::clone(&self.entry));
        candidate.region.clone_from(&self.provider.info().region);
        candidate.area.clone_from(&self.area);
        candidate.unmet = self.unmet(&spec);
        if let Some(keeper) = options.snapshot_at.as_deref().filter(|keeper| *keeper != self.name()) {
            let why = "the snapshot that it starts from is kept by another provider";
            candidate.unmet.push(Unmet::new("snapshot", keeper, self.name(), why));
        }
        if let Some(why) = options.not_here.as_ref().filter(|_| can.host_trees) {
            candidate.unmet.push(Unmet::new("language", "installed", "not installed", why));
        }
        candidate.load = Load { in_use, limit: self.most };
        candidate.free_credit = self.free_credit;
        candidate.budget = self.budget;
        candidate
    }
}
