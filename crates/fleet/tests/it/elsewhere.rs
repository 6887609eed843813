//! What a member gets that has none of this machine's trees.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandstorm_catalog::Catalog;
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    Command, CreateOptions, Exec, ExecRequest, HostMount, OpContext, Portable, PortableProgram, Provider,
    Result, Sandbox, Tasks,
};
use sandstorm_types::{Capabilities, Enforcement, EnvMap, SandboxId, SandboxSpec, TenantId};

/// Remembers what it was asked for.
#[derive(Debug)]
struct Far {
    inner: MemoryProvider,
    takes_code: bool,
    created: Mutex<Vec<(SandboxSpec, CreateOptions)>>,
    begun: Mutex<Vec<ExecRequest>>,
}

#[async_trait]
impl Alteration for Far {
    fn original(&self) -> &dyn Provider {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        let exec_code = self.takes_code;
        Capabilities { host_trees: false, exec_code, ..self.inner.capabilities() }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.created.lock().unwrap().push((spec.clone(), opts.clone()));
        self.inner.create(cx, spec, opts).await
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.begun.lock().unwrap().push(req);
        self.inner.exec(cx, id, ExecRequest::program(["/bin/true"])).await
    }
}

fn cx() -> OpContext {
    OpContext::new(TenantId::random())
}

fn far(takes_code: bool) -> (Arc<Fleet>, Arc<Altered<Far>>) {
    let far = Far {
        inner: MemoryProvider::named("far"),
        takes_code,
        created: Mutex::default(),
        begun: Mutex::default(),
    };
    let far = Arc::new(Altered(far));
    let entry = Arc::new(Catalog::embedded().get("sandstorm").unwrap().clone());
    let member = Member::new(Arc::clone(&far) as Arc<dyn Provider>, entry);
    let settings = FleetSettings { orphan_age: Duration::ZERO, ..FleetSettings::default() };
    (Fleet::new(vec![member], settings, 7, Tasks::default()), far)
}

fn options() -> CreateOptions {
    let mount = HostMount { source: "/opt/x".into(), target: "/opt/x".into() };
    let mut elsewhere = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    elsewhere.env.insert("PLACE".parse().unwrap(), "there".to_owned()).unwrap();
    CreateOptions { mounts: vec![mount], elsewhere: Some(Box::new(elsewhere)), ..CreateOptions::default() }
}

fn portable(program: Option<PortableProgram>) -> ExecRequest {
    let mut request = ExecRequest::program(["/usr/bin/python3", "/workspace/main.py"]);
    let portable = Portable {
        language: "python".parse().unwrap(),
        code: "print(1)".to_owned(),
        args: Vec::new(),
        env: EnvMap::new(),
        files: Vec::new(),
        program,
    };
    request.portable = Some(Box::new(portable));
    request
}

#[tokio::test]
async fn no_tree_and_no_path_of_this_machine_goes_elsewhere() {
    let bare = PortableProgram { argv: vec!["python3".to_owned()], env: EnvMap::new(), files: Vec::new() };
    for takes_code in [true, false] {
        let (fleet, far) = far(takes_code);
        let here = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let made = fleet.create(&cx(), &here, options()).await.unwrap();
        assert!(made.placement.as_ref().unwrap().elsewhere);
        let (spec, opts) = far.created.lock().unwrap()[0].clone();
        assert!(opts.mounts.is_empty() && opts.elsewhere.is_none());
        assert_eq!(spec.env.get("PLACE"), Some("there"));
        fleet.exec(&cx(), &made.id, portable(Some(bare.clone()))).await.unwrap();
        let begun = far.begun.lock().unwrap()[0].clone();
        match takes_code {
            true => assert_eq!(begun.portable.unwrap().code, "print(1)"),
            false => assert_eq!(begun.command, Command::Program(vec!["python3".to_owned()])),
        }
    }
}

#[tokio::test]
async fn what_would_have_to_be_compiled_is_refused_by_name() {
    let (fleet, far) = far(false);
    let here = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let made = fleet.create(&cx(), &here, CreateOptions::default()).await.unwrap();
    let refused = fleet.exec(&cx(), &made.id, portable(None)).await.err().unwrap();
    assert_eq!(refused.reasons()[0].feature, "exec_code");
    assert!(refused.is_not_started() && far.begun.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_here_knows_of_is_found_and_ended() {
    let (fleet, far) = far(true);
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let known = fleet.create(&cx(), &spec, CreateOptions::default()).await.unwrap();
    let stray = far.inner.create(&cx(), &spec, CreateOptions::default()).await.unwrap();
    let orphans = fleet.orphans().await;
    assert_eq!(orphans.iter().map(|orphan| orphan.sandbox).collect::<Vec<_>>(), [stray.id]);
    fleet.end_orphan(&orphans[0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(far.inner.get(&cx(), &stray.id).await.is_err());
    assert!(fleet.get(&cx(), &known.id).await.is_ok());
    assert_eq!(fleet.orphans().await, []);
}
