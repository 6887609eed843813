//! Small creations of our own that find out how members are, so that users' requests need not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use sandstorm_provider::{CreateOptions, ExecRequest, OpContext};
use sandstorm_router::{ArmKey, ErrorFamily, Observed, Probe, ProbeReason};
use sandstorm_types::{ErrorKind, SandboxId, TenantId};

use crate::fleet::Fleet;
use crate::homes::Place;
use crate::portable;

/// How often the router is asked whom to probe. Its budget decides how many probes there are.
const EVERY: Duration = Duration::from_secs(5);

impl Fleet {
    /// Begins to probe and to tell metrics, until the fleet's tasks end.
    pub fn start_probing(self: &Arc<Self>) {
        let fleet = Arc::clone(self);
        self.tasks.start("probes", async move {
            loop {
                tokio::time::sleep(EVERY).await;
                fleet.tell_health();
                if let Some(probe) = fleet.plan_probe() {
                    fleet.probe(&probe).await;
                }
            }
        });
    }

    fn plan_probe(&self) -> Option<Probe> {
        let spec = &self.settings.probe;
        let candidates = self.candidates(spec, &CreateOptions::default());
        let request = self.request(spec, None);
        self.router().plan_probe(&request, &candidates, self.now())
    }

    /// Makes a sandbox there and ends it.
    async fn probe(&self, probe: &Probe) {
        let Some(place) = self.place_named(&probe.provider) else { return };
        if !self.router().attempt_begins(&probe.provider, self.now()) {
            return;
        }
        let provider = &self.members[place].provider;
        let can = provider.capabilities();
        let options = CreateOptions { ephemeral: true, ..CreateOptions::default() };
        let (id, options) = (options.id, portable::options(can, &options));
        self.homes.trying(id, place);
        let cx = OpContext::new(TenantId::LOCAL).with_timeout(self.settings.patience);
        let began = Instant::now();
        let made = provider.create(&cx, &self.settings.probe, options).await;
        let after = began.elapsed();
        let observed = match &made {
            Ok(_) => Observed::Ready { after },
            Err(error) if error.kind() == ErrorKind::Cancelled => Observed::Nothing,
            // What is asked for is known to be right: a place that takes it for wrong fails.
            Err(error) => Observed::Failed {
                family: ErrorFamily::of(error.kind()).unwrap_or(ErrorFamily::Failure),
                after: Some(after),
                retry_after: error.retry_after(),
            },
        };
        if made.is_ok() && probe.why == ProbeReason::Recovery {
            self.try_work(&cx, place, id).await;
        }
        let class = self.settings.usual.class.clone();
        let key = ArmKey { provider: probe.provider.clone(), region: probe.region.clone(), class };
        {
            let mut router = self.router();
            router.attempt_observed(&key, observed, self.now());
            router.attempt_ends(&probe.provider);
        }
        let outcome = made.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        let labels = [("provider", probe.provider.clone()), ("outcome", outcome.to_owned())];
        metrics::counter!("sandstorm_route_probes_total", &labels).increment(1);
        self.sweep(TenantId::LOCAL, id, place);
    }

    /// One that lost what ran there has to show that it does not any more; that it makes sandboxes proves nothing.
    async fn try_work(&self, cx: &OpContext, place: Place, id: SandboxId) {
        let (provider, began) = (&self.members[place].provider, Instant::now());
        if !provider.capabilities().exec {
            return;
        }
        let request = ExecRequest::program(["/bin/true"]);
        match provider.exec(cx, &id, request).await {
            // Whoever sees it to its end tells what came of it.
            Ok(exec) => {
                let events = self.witnessed(place, id, began, exec).events;
                let _ = cx.run("probe", events.for_each(async |_| {}).map(Ok)).await;
            }
            Err(error) => self.blame(cx, place, &id, began, &error).await,
        }
    }

    /// Which members are being left alone.
    fn tell_health(&self) {
        let now = self.now();
        for member in &self.members {
            let up = self.router().health(member.name(), now).may_be_asked();
            metrics::gauge!("sandstorm_route_provider_up", "provider" => member.name().to_owned())
                .set(f64::from(u8::from(up)));
        }
    }
}
