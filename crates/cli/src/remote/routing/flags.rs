//! Where something should go, as flags say it.

use clap::Args;
use sandstorm_types::{Require, Routing};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::complaint::misuse;

const HEADING: &str = "Where it goes";

#[derive(Debug, Default, Args)]
pub(crate) struct RoutingFlags {
    /// What is better: `cheapest`, `fastest`, `balanced`, or weights such as `latency=2,cost=1`
    #[arg(long, value_name = "OBJECTIVE", help_heading = HEADING)]
    objective: Option<String>,
    /// Most that it may be expected to cost, in US dollars
    #[arg(long, value_name = "USD", help_heading = HEADING)]
    max_cost: Option<String>,
    /// Longest time until it is ready, such as `2s`
    #[arg(long, value_name = "TIME", help_heading = HEADING)]
    max_latency: Option<String>,
    /// Region to prefer
    #[arg(long, value_name = "REGION", help_heading = HEADING)]
    region: Option<String>,
    /// Provider to prefer; may be repeated
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    prefer: Vec<String>,
    /// Provider that must not be used; may be repeated
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    exclude: Vec<String>,
    /// Provider to try next; may be repeated, the first one first
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    order: Vec<String>,
    /// Capability that it must have, such as `exec_tty`; may be repeated
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    capability: Vec<String>,
    /// Weakest boundary: `process`, `container`, `user_kernel` or `micro_vm`
    #[arg(long, value_name = "GRADE", help_heading = HEADING)]
    isolation: Option<String>,
    /// Accelerator that it must have, or `any`
    #[arg(long, value_name = "KIND", help_heading = HEADING)]
    gpu: Option<String>,
    /// Region or area that data may go to; may be repeated
    #[arg(long, value_name = "REGION", help_heading = HEADING)]
    data_in: Vec<String>,
}

impl RoutingFlags {
    /// `None` where nothing was said.
    pub(crate) fn routing(&self) -> anyhow::Result<Option<Box<Routing>>> {
        let objective = self.objective.as_deref().map(objective).transpose()?;
        let routing = Routing {
            objective: objective.map(|value| read("--objective", value)).transpose()?,
            max_cost: text("--max-cost", self.max_cost.as_deref())?,
            max_latency: self
                .max_latency
                .as_deref()
                .map(|text| super::super::sandbox::time("--max-latency", text))
                .transpose()?,
            preferred_region: self.region.clone(),
            preferred_providers: self.prefer.clone(),
            exclude_providers: self.exclude.clone(),
            order: self.order.clone(),
            require: Require {
                capabilities: self.capability.clone(),
                isolation: text("--isolation", self.isolation.as_deref())?,
                gpu: self.gpu.clone(),
                regions: self.data_in.clone(),
            },
        };
        Ok((routing != Routing::default()).then(|| Box::new(routing)))
    }
}

fn text<T: DeserializeOwned>(flag: &str, text: Option<&str>) -> anyhow::Result<Option<T>> {
    text.map(|text| read(flag, json!(text))).transpose()
}

/// A value in the form that requests have.
fn read<T: DeserializeOwned>(flag: &str, value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value.clone()).map_err(|e| misuse(format!("{flag} {value}: {e}")))
}

/// A name, or weights.
fn objective(text: &str) -> anyhow::Result<Value> {
    if !text.contains('=') {
        return Ok(json!(text));
    }
    let mut weights = Map::new();
    for part in text.split(',') {
        let weight =
            part.split_once('=').and_then(|(name, number)| Some((name, number.parse::<f64>().ok()?)));
        let Some((name, number)) = weight else {
            return Err(misuse(format!("--objective {text}: write weights like `latency=2,cost=1`")));
        };
        weights.insert(name.to_owned(), json!(number));
    }
    Ok(json!({ "weighted": weights }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objective(text: &str) -> anyhow::Result<Option<Box<Routing>>> {
        RoutingFlags { objective: Some(text.to_owned()), ..RoutingFlags::default() }.routing()
    }

    #[test]
    fn nothing_said_is_nothing_wanted() {
        assert_eq!(RoutingFlags::default().routing().unwrap(), None);
    }

    #[test]
    fn names_and_weights_are_read() {
        let fastest = serde_json::to_value(objective("fastest").unwrap()).unwrap();
        assert_eq!(fastest, json!({"objective": "fastest"}));
        let weighted = serde_json::to_value(objective("latency=2,cost=1").unwrap()).unwrap();
        assert_eq!(weighted["objective"]["weighted"]["latency"], json!(2.0));
        assert!(objective("latency=much").is_err());
        assert!(objective("nicest").unwrap_err().to_string().contains("--objective"));
    }

    #[test]
    fn a_wrong_word_is_named_with_its_flag() {
        let flags = RoutingFlags { isolation: Some("strong".into()), ..RoutingFlags::default() };
        let error = flags.routing().unwrap_err().to_string();
        assert!(error.contains("--isolation") && error.contains("micro_vm"), "{error}");
        let flags = RoutingFlags { max_cost: Some("much".into()), ..RoutingFlags::default() };
        assert!(flags.routing().unwrap_err().to_string().contains("--max-cost"));
    }
}
