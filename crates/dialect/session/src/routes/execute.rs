//! Commands of a shell.

use axum::Extension;
use axum::extract::State;
use sandstorm_control::server::Caller;

use crate::answer::Answer;
use crate::program::{Executed, bounded, exec_of, finished, quoted};
use crate::refusal::Refusal;
use crate::request::{BodyFields, Target};
use crate::router::Dialect;
use crate::routes::files::leave_logs;

/// `command` is a line of the shell; each of `args` is one more word of it.
pub(crate) async fn execute(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Answer<Executed>, Refusal> {
    let mut line = body.text("command");
    for word in body.texts("args") {
        line.push(' ');
        line.push_str(&quoted(&word));
    }
    body.done()?;
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let settings = &dialect.sessions.settings;
    let command = bounded(settings, vec![settings.shell.clone(), "-c".to_owned(), line]);
    let exec = exec_of(command, settings.timeout, None);
    let result = finished(&dialect.sessions.control, &caller, view.id, exec).await?;
    let done = Executed::from(&result);
    leave_logs(&dialect, &caller, view.id, &done).await;
    Ok(Answer(done))
}
