//! What can be meant by what was typed so far.

use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo};
use sandstorm_control::server::SandboxQuery;
use sandstorm_provider::{FileKind, FileOp, FileReply};
use sandstorm_types::{GuestPath, SandboxId};

use crate::call::Call;
use crate::server::protocol_error;
use crate::text::plain;
use crate::tools::language_names;

pub(crate) async fn complete(
    call: &Call,
    request: &CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let typed = request.argument.value.as_str();
    let other = |name: &str| request.context.as_ref()?.get_argument(name).cloned();
    let mut found = match request.argument.name.as_str() {
        "language" => language_names(),
        "stream" => vec!["stdout".to_owned(), "stderr".to_owned()],
        "sandbox_id" => sandboxes(call).await?,
        "path" => match other("sandbox_id").and_then(|id| id.parse().ok()) {
            Some(sandbox) => paths(call, sandbox, typed).await,
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    found.retain(|value| value.starts_with(typed));
    let total = u32::try_from(found.len()).ok();
    let more = found.len() > CompletionInfo::MAX_VALUES;
    found.truncate(CompletionInfo::MAX_VALUES);
    let mut info = CompletionInfo::new(found).map_err(|error| ErrorData::internal_error(error, None))?;
    (info.total, info.has_more) = (total, Some(more));
    Ok(CompleteResult::new(info))
}

async fn sandboxes(call: &Call) -> Result<Vec<String>, ErrorData> {
    let page =
        call.control().sandboxes(&call.caller, SandboxQuery::default()).await.map_err(protocol_error)?;
    Ok(page.items.iter().map(|view| view.id.to_string()).collect())
}

/// What is in the folder that the typed path is in. One that cannot be looked at has nothing.
async fn paths(call: &Call, sandbox: SandboxId, typed: &str) -> Vec<String> {
    let folder = match typed.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "/workspace",
    };
    let Ok(folder) = folder.parse::<GuestPath>() else { return Vec::new() };
    let op = FileOp::List { path: folder, depth: 1, limit: 1000 };
    let Ok(FileReply::List { entries, .. }) = call.control().files(&call.caller, sandbox, op).await else {
        return Vec::new();
    };
    let path = |info: &sandstorm_provider::FileInfo| {
        let end = if info.kind == FileKind::Directory { "/" } else { "" };
        format!("{}{end}", plain(info.path.as_str()))
    };
    entries.iter().map(path).collect()
}
