//! What the official conformance suite wants to find in a server, beside the real tools.
//!
//! The suite does not look at real tools: it calls tools, prompts and resources of fixed names and judges how their answers
//! travel. They are served by the same stack as the real ones, so a pass says something about that stack. They are of no use
//! to anybody else, and are there only when asked for.
//!
//! Names and texts that the suite looks for are spelled as it spells them.

mod changes;
mod content;
mod jobs;
mod prompts;
mod question;
mod resources;
mod rounds;
mod stream;
mod talk;
mod tool;

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
        ErrorCode, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Prompt,
        ProtocolVersion, ReadResourceResult, Resource, ResourceTemplate, ServerCapabilities, Tool,
        UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext},
    transport::streamable_http_server::session::local::LocalSessionManager,
};

use changes::Changes;
use jobs::Jobs;
use rounds::Seal;

/// What the conformance suite wants to find, beside the real tools.
///
/// A clone shares its state with the original: on the newer wire every request is served by a fresh handler.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fixtures {
    state: Arc<State>,
    sessions: Option<Arc<LocalSessionManager>>,
}

/// What has to outlive one request.
#[derive(Debug, Default)]
struct State {
    changes: Changes,
    jobs: Jobs,
    seal: Seal,
}

impl Fixtures {
    /// Lets `test_reconnection` close its own stream, which only the keeper of the sessions can do.
    pub(crate) fn with_sessions(mut self, sessions: Arc<LocalSessionManager>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// What a server with these fixtures has to declare.
    ///
    /// Logging is deprecated and has no builder without a warning, so it is set as a field.
    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let mut capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        capabilities.logging = Some(Default::default());
        capabilities
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools = content::tools();
        tools.extend(talk::tools());
        tools.extend(stream::tools());
        tools.extend(rounds::tools());
        tools.extend(jobs::tools());
        tools.extend(self.state.changes.tools());
        tools
    }

    /// One tool by name. The transport compares `Mcp-Param-*` headers with its schema.
    pub(crate) fn tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    /// `None`: not one of these.
    pub(crate) async fn call_tool(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<CallToolResponse, ErrorData>> {
        if let Some(answer) = content::call(request, context) {
            return Some(answer);
        }
        if let Some(answer) = talk::call(request, context).await {
            return Some(answer);
        }
        if let Some(answer) = stream::call(request, context, self.sessions.as_deref()).await {
            return Some(answer);
        }
        if let Some(answer) = rounds::call(request, context, &self.state.seal) {
            return Some(answer);
        }
        if let Some(answer) = self.state.jobs.call(request, context, &self.state.seal).await {
            return Some(answer);
        }
        self.state.changes.call(request, context).await
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        let mut prompts = prompts::prompts();
        prompts.extend(self.state.changes.prompts());
        prompts
    }

    /// `None`: not one of these.
    pub(crate) async fn get_prompt(
        &self,
        request: &GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<GetPromptResponse, ErrorData>> {
        prompts::get(request, context, &self.state.seal)
    }

    pub(crate) fn resources(&self) -> Vec<Resource> {
        resources::resources()
    }

    pub(crate) fn resource_templates(&self) -> Vec<ResourceTemplate> {
        resources::templates()
    }

    /// `None`: not one of these.
    pub(crate) fn read_resource(&self, uri: &str) -> Option<ReadResourceResult> {
        resources::read(uri)
    }

    /// Whether this can be subscribed to on the older wire. It never changes, so nothing has to be remembered.
    pub(crate) fn watches(&self, uri: &str) -> bool {
        resources::read(uri).is_some()
    }

    /// `None`: not about one of these.
    pub(crate) fn complete(&self, request: &CompleteRequestParams) -> Option<CompleteResult> {
        prompts::complete(request)
    }

    /// `logging/setLevel` of the older wire. The newer one has no such method, and the SDK does not refuse it by itself.
    ///
    /// The level is not kept: the fixtures log at one level only, and each call of them is asked for.
    pub(crate) fn set_level(&self, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if is_stateless(context) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "logging/setLevel", None));
        }
        Ok(())
    }

    /// Serves one `subscriptions/listen` until its client hangs up.
    pub(crate) async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        self.state.changes.listen(subscription).await
    }

    pub(crate) fn get_task(&self, request: &GetTaskParams) -> Result<GetTaskResult, ErrorData> {
        self.state.jobs.get(&request.task_id)
    }

    pub(crate) fn update_task(&self, request: UpdateTaskParams) -> Result<(), ErrorData> {
        self.state.jobs.update(&request.task_id, request.input_responses)
    }

    pub(crate) fn cancel_task(&self, request: &CancelTaskParams) -> Result<(), ErrorData> {
        self.state.jobs.cancel(&request.task_id)
    }
}

/// Whether this request came on the wire without sessions. Revisions are dates, so they compare as text.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tool_has_its_own_name_and_says_what_it_does() {
        let tools = Fixtures::default().tools();
        let names: BTreeSet<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(names.len(), tools.len());
        assert!(tools.iter().all(|tool| tool.description.as_ref().is_some_and(|text| !text.is_empty())));
    }

    #[test]
    fn a_listed_resource_can_be_read_and_a_made_up_one_cannot() {
        let fixtures = Fixtures::default();
        assert!(fixtures.resources().iter().all(|resource| fixtures.read_resource(&resource.uri).is_some()));
        assert!(fixtures.read_resource("test://template/7/data").is_some());
        assert!(fixtures.read_resource("test://nothing").is_none());
        assert!(fixtures.read_resource("test://template//data").is_none());
    }
}
