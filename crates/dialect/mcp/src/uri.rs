//! Addresses of resources: files of sandboxes, output of execs and runs.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sandstorm_types::{ExecId, GuestPath, RunId, SandboxId, Stream};

const SCHEME: &str = "sandstorm://";

/// What a path keeps as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// Templates of the addresses, with what they are.
pub(crate) const TEMPLATES: [(&str, &str, &str); 3] = [
    (
        "sandstorm://sandboxes/{sandbox_id}/files{+path}",
        "sandbox file",
        "A file of a sandbox by its absolute path; a folder is a list of what is in it.",
    ),
    (
        "sandstorm://sandboxes/{sandbox_id}/execs/{exec_id}/{stream}",
        "output of a command",
        "All that is kept of what a command in a sandbox wrote; stream is stdout or stderr.",
    ),
    (
        "sandstorm://runs/{run_id}/{stream}",
        "output of a run",
        "All that is kept of what a one-shot run wrote; stream is stdout or stderr.",
    ),
];

/// What an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    File { sandbox: SandboxId, path: GuestPath },
    Exec { sandbox: SandboxId, exec: ExecId, stream: Stream },
    Run { run: RunId, stream: Stream },
}

impl Place {
    pub(crate) fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME)?;
        let (kind, rest) = rest.split_once('/')?;
        match kind {
            "sandboxes" => {
                let (sandbox, rest) = rest.split_once('/')?;
                let sandbox = sandbox.parse().ok()?;
                if let Some(path) = rest.strip_prefix("files/") {
                    let path = percent_decode_str(path).decode_utf8().ok()?;
                    return Some(Self::File { sandbox, path: format!("/{path}").parse().ok()? });
                }
                let (exec, stream) = rest.strip_prefix("execs/")?.split_once('/')?;
                Some(Self::Exec { sandbox, exec: exec.parse().ok()?, stream: stream_named(stream)? })
            }
            "runs" => {
                let (run, stream) = rest.split_once('/')?;
                Some(Self::Run { run: run.parse().ok()?, stream: stream_named(stream)? })
            }
            _ => None,
        }
    }
}

pub(crate) fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

fn stream_named(name: &str) -> Option<Stream> {
    [Stream::Stdout, Stream::Stderr].into_iter().find(|stream| stream_name(*stream) == name)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { sandbox, path } => {
                write!(f, "{SCHEME}sandboxes/{sandbox}/files{}", utf8_percent_encode(path.as_str(), PATH))
            }
            Self::Exec { sandbox, exec, stream } => {
                write!(f, "{SCHEME}sandboxes/{sandbox}/execs/{exec}/{}", stream_name(*stream))
            }
            Self::Run { run, stream } => write!(f, "{SCHEME}runs/{run}/{}", stream_name(*stream)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        let sandbox = SandboxId::random();
        let places = [
            Place::File { sandbox, path: "/workspace/ä b?#%.csv".parse().unwrap() },
            Place::Exec { sandbox, exec: ExecId::random(), stream: Stream::Stderr },
            Place::Run { run: RunId::random(), stream: Stream::Stdout },
        ];
        for place in places {
            let text = place.to_string();
            assert!(text.is_ascii() && !text.contains([' ', '?', '#']), "{text}");
            assert_eq!(Place::parse(&text), Some(place), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        let sandbox = SandboxId::random();
        for bad in [
            "file:///etc/passwd".to_owned(),
            "sandstorm://sandboxes/x/files/a".to_owned(),
            format!("sandstorm://sandboxes/{sandbox}/files/%ff"),
            format!("sandstorm://sandboxes/{sandbox}/files/a%00"),
            format!("sandstorm://sandboxes/{sandbox}/execs/exec_x/stdout"),
            "sandstorm://runs/run_x/stdout".to_owned(),
            String::new(),
        ] {
            assert_eq!(Place::parse(&bad), None, "{bad}");
        }
    }
}
