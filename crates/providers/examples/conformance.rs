//! Judges a hosted provider by the suite for all providers and prints the report.
//!
//! `conformance KIND ADDRESS [PREFIX]`: of kind `e2b` or `sandstorm`, at an address, with the key from standard input;
//! only cases whose `suite/name` starts with the prefix run.

use std::io::Write as _;
use std::process::ExitCode;

use sandstorm_provider::{Provider, conformance};
use sandstorm_providers::e2b::{self, E2bProvider};
use sandstorm_providers::sandstorm::{self, SandstormProvider};
use sandstorm_providers::{ApiKey, Owner};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let mut words = std::env::args().skip(1);
    let (kind, address) = words.next().zip(words.next()).ok_or("usage: conformance KIND ADDRESS [PREFIX]")?;
    let prefix = words.next().unwrap_or_default();
    let key = std::io::read_to_string(std::io::stdin())?;
    let provider = connect(&kind, address, ApiKey::new(key.trim())).await?;
    let report = conformance::run_cases(&*provider, &prefix).await;
    write!(std::io::stdout(), "{report}")?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn connect(kind: &str, address: String, key: ApiKey) -> Result<Box<dyn Provider>, Failure> {
    let owner: Owner = "conformance".parse()?;
    match kind {
        "e2b" => {
            let mut config = e2b::Config::new("e2b", key, owner);
            config.api_url = Some(address.clone());
            config.sandbox_url = Some(address);
            Ok(Box::new(E2bProvider::connect(config).await?))
        }
        "sandstorm" => {
            let mut config = sandstorm::Config::new("sandstorm", address, owner);
            config.key = Some(key);
            Ok(Box::new(SandstormProvider::connect(config).await?))
        }
        _ => Err("the kind is none".into()),
    }
}
