//! Events of a stream, as clients see them.
//!
//! Each event has a number; output events also have the offset of their first byte in their stream, so
//! that a client can resume and can tell that nothing was lost. Order holds within a stream.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Denied, ErrorKind, ExecId, LimitName, Metrics, PerStream, ProgramError, RichResult, Status};

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the stream, from 0; the `id:` of a server-sent event.
    pub seq: u64,
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    Start {
        exec: ExecId,
    },
    Stdout(Chunk),
    Stderr(Chunk),
    /// A value that the code produced.
    Result(RichResult),
    /// An exception of the program; the platform's own failures end the stream with a problem.
    Error(ProgramError),
    End(Box<End>),
}

/// One of a program's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Place of the first byte in its stream.
    pub offset: u64,
    #[serde(flatten)]
    pub data: ChunkData,
}

/// Text where the bytes are UTF-8, base64 where they are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkData {
    Text(String),
    #[serde(serialize_with = "encode", deserialize_with = "decode")]
    Base64(Vec<u8>),
}

impl ChunkData {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Base64(bytes) => bytes,
        }
    }
}

fn encode<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&BASE64.encode_display(bytes))
}

fn decode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(|_| de::Error::custom("chunk is not standard, padded base64"))
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub status: Status,
    pub success: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub limits_hit: Vec<LimitName>,
    /// What it wanted to reach on the network while it ran and did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denied>,
    pub metrics: Metrics,
    /// Which streams were longer than what these events told of them.
    #[serde(default, skip_serializing_if = "is_whole")]
    pub truncated: PerStream<bool>,
    /// Set when the platform failed, whatever the program did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_whole(truncated: &PerStream<bool>) -> bool {
    !truncated.stdout && !truncated.stderr
}

impl End {
    /// Whether output is missing.
    pub fn is_cut(&self) -> bool {
        !is_whole(&self.truncated)
    }
}

/// A platform failure in the words of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub code: ErrorKind,
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(event: &Event) -> String {
        let text = serde_json::to_string(event).unwrap();
        assert_eq!(&serde_json::from_str::<Event>(&text).unwrap(), event);
        text
    }

    #[test]
    fn events_have_one_flat_shape() {
        let exec = ExecId::from_bits(0);
        let start = Event { seq: 0, body: EventBody::Start { exec } };
        assert_eq!(json(&start), format!(r#"{{"seq":0,"type":"start","exec":"{exec}"}}"#));
        let chunk = Chunk { offset: 7, data: ChunkData::Text("hi\n".into()) };
        let out = Event { seq: 1, body: EventBody::Stdout(chunk) };
        assert_eq!(json(&out), r#"{"seq":1,"type":"stdout","offset":7,"text":"hi\n"}"#);
        let chunk = Chunk { offset: 0, data: ChunkData::Base64(vec![255]) };
        let err = Event { seq: 2, body: EventBody::Stderr(chunk) };
        assert_eq!(json(&err), r#"{"seq":2,"type":"stderr","offset":0,"base64":"/w=="}"#);
    }

    #[test]
    fn an_end_tells_program_and_platform_apart() {
        let end = End {
            status: Status::Error,
            success: false,
            exit_code: Some(3),
            signal: None,
            limits_hit: vec![LimitName::Disk],
            denied: Vec::new(),
            metrics: Metrics::default(),
            truncated: PerStream::default(),
            problem: None,
        };
        let event = Event { seq: 9, body: EventBody::End(Box::new(end.clone())) };
        assert!(!json(&event).contains("problem") && !json(&event).contains("truncated"));
        let truncated = PerStream { stdout: true, stderr: false };
        let event = Event { seq: 9, body: EventBody::End(Box::new(End { truncated, ..end.clone() })) };
        assert!(json(&event).contains(r#""truncated":{"stdout":true,"stderr":false}"#));
        let problem = Some(Problem { code: ErrorKind::Provider, detail: "connection lost".into() });
        let event = Event { seq: 9, body: EventBody::End(Box::new(End { problem, ..end })) };
        assert!(json(&event).contains(r#""problem":{"code":"provider","detail":"connection lost"}"#));
    }
}
