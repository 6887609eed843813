//! What a caller wants of a route.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// What costs least; of what costs the same, the fastest.
    Cheapest,
    /// What is ready first, failures counted in; of what is as fast, the cheapest.
    Fastest,
    /// Twice as fast is worth twice the price.
    #[default]
    Balanced,
    /// The caller's own weights.
    Weighted(Weights),
}

/// How much each thing counts. They weigh logarithms, so a weight says what a doubling is worth, and units do not matter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawWeights")]
pub struct Weights {
    latency: f64,
    cost: f64,
    reliability: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWeights {
    #[serde(default)]
    latency: f64,
    #[serde(default)]
    cost: f64,
    #[serde(default)]
    reliability: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("weights are numbers that are not negative, and one of latency, cost and reliability is more than 0")]
pub struct WeightsError;

impl TryFrom<RawWeights> for Weights {
    type Error = WeightsError;

    fn try_from(raw: RawWeights) -> Result<Self, WeightsError> {
        Self::new(raw.latency, raw.cost, raw.reliability)
    }
}

/// Decides between places that are otherwise alike. So little that ten times as fast is worth half a percent.
const TIE: f64 = 0.002;

/// None of them is anything but a number.
impl Eq for Weights {}

impl Weights {
    pub fn new(latency: f64, cost: f64, reliability: f64) -> Result<Self, WeightsError> {
        let all = [latency, cost, reliability];
        let fine =
            all.iter().all(|weight| weight.is_finite() && *weight >= 0.0) && all.iter().any(|w| *w > 0.0);
        if fine { Ok(Self { latency, cost, reliability }) } else { Err(WeightsError) }
    }

    pub const fn latency(&self) -> f64 {
        self.latency
    }

    pub const fn cost(&self) -> f64 {
        self.cost
    }

    pub const fn reliability(&self) -> f64 {
        self.reliability
    }
}

impl Objective {
    pub const fn weights(self) -> Weights {
        // A run that fails is paid for as well: reliability weighs as cost does, which makes it the price of a success.
        match self {
            Self::Cheapest => Weights { latency: TIE, cost: 1.0, reliability: 1.0 },
            Self::Fastest => Weights { latency: 1.0, cost: TIE, reliability: 0.0 },
            Self::Balanced => Weights { latency: 1.0, cost: 1.0, reliability: 1.0 },
            Self::Weighted(weights) => weights,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_weights_are_read() {
        let read = |json: &str| serde_json::from_str::<Objective>(json);
        assert_eq!(read("\"cheapest\"").unwrap(), Objective::Cheapest);
        let weights = Weights::new(2.0, 1.0, 0.0).unwrap();
        assert_eq!(read(r#"{"weighted": {"latency": 2, "cost": 1}}"#).unwrap(), Objective::Weighted(weights));
        for json in [
            "\"best\"",
            r#"{"weighted": {}}"#,
            r#"{"weighted": {"latency": -1}}"#,
            r#"{"weighted": {"speed": 1}}"#,
        ] {
            assert!(read(json).is_err(), "{json}");
        }
        let json = serde_json::to_string(&Objective::Weighted(weights)).unwrap();
        assert_eq!(read(&json).unwrap(), Objective::Weighted(weights));
    }
}
