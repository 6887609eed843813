//! What is asked of a member that has none of this machine's trees.

use std::borrow::Cow;

use sandstorm_provider::{Command, CreateOptions, Error, ExecRequest, Result};
use sandstorm_types::{Capabilities, SandboxSpec, Unmet};

/// The spec of a sandbox as a member gets it.
pub(crate) fn spec<'a>(
    can: Capabilities,
    spec: &'a SandboxSpec,
    options: &'a CreateOptions,
) -> Cow<'a, SandboxSpec> {
    match &options.elsewhere {
        Some(elsewhere) if !can.host_trees => Cow::Borrowed(elsewhere),
        _ => Cow::Borrowed(spec),
    }
}

/// The options of a creation as a member gets them.
pub(crate) fn options(can: Capabilities, options: &CreateOptions) -> CreateOptions {
    let mut own = CreateOptions {
        routing: None,
        elsewhere: None,
        not_here: None,
        snapshot_at: None,
        ..options.clone()
    };
    if !can.host_trees {
        own.mounts.clear();
        own.expects = None;
    }
    own
}

/// A program as a member gets it.
pub(crate) fn exec(can: Capabilities, mut request: ExecRequest) -> Result<ExecRequest> {
    let Some(portable) = request.portable.take().filter(|_| !can.host_trees) else { return Ok(request) };
    if can.exec_code {
        request.env = portable.env.clone();
        request.files.clone_from(&portable.files);
        request.portable = Some(portable);
        return Ok(request);
    }
    let Some(program) = portable.program else {
        let why = "the place where the sandbox is does not compile, and programs of this machine mean nothing there";
        return Err(Error::unmet(vec![Unmet::new("exec_code", "yes", "no", why)]).with_not_started());
    };
    request.command = Command::Program(program.argv);
    request.env = program.env;
    request.files = program.files;
    Ok(request)
}
