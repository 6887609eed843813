//! `languages`: what can be run here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_code::shares_interpreters;
use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::Call;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Languages;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {}

/// What can be run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    languages: Vec<Language>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Language {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Whether variables can be kept from one call to the next.
    pub(crate) keeps_variables: bool,
    /// Whether packages can be asked for.
    pub(crate) packages: bool,
}

impl Tool for Languages {
    const NAME: &'static str = "languages";
    const TITLE: &'static str = "List languages";
    const DESCRIPTION: &'static str = "Lists the languages that run_code knows, which of them keep variables between calls and which take \
        packages.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = Input;
    type Output = Listed;

    async fn call(_call: Call, _input: Input) -> Result<Answer<Listed>, Refusal> {
        let languages = all();
        let line = |language: &Language| {
            let more = match (language.keeps_variables, language.packages) {
                (true, true) => " (keeps variables, takes packages)",
                (true, false) => " (keeps variables)",
                (false, true) => " (takes packages)",
                (false, false) => "",
            };
            format!("{}{more}", language.name)
        };
        let text = languages.iter().map(line).collect::<Vec<_>>().join("\n");
        Ok(Answer::new(Listed { languages }, text))
    }
}

/// The catalogue, as clients see it.
pub(crate) fn all() -> Vec<Language> {
    let language = |language: &sandstorm_language::Language| Language {
        name: language.name.clone(),
        title: language.title.clone(),
        keeps_variables: shares_interpreters(language),
        packages: language.packages.is_some(),
    };
    sandstorm_language::Catalogue::embedded().iter().map(language).collect()
}
