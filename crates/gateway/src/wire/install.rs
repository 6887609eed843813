//! Packages for a sandbox that lives.

use sandstorm_control::server::{Installed, NewInstall};
use sandstorm_types::Requirement;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::Wire;

/// Packages to install.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Install {
    /// The package manager: `pip` or `npm`.
    #[schema(example = "pip")]
    manager: String,
    /// As the package manager spells them.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100, example = json!(["requests==2.32.3"]))]
    packages: Vec<Requirement>,
}

impl Wire for Install {}

impl From<Install> for NewInstall {
    fn from(wanted: Install) -> Self {
        Self { manager: wanted.manager, packages: wanted.packages }
    }
}

/// What was installed, and where.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Installed)]
pub(crate) struct InstalledBody {
    manager: String,
    #[schema(value_type = Vec<String>)]
    packages: Vec<Requirement>,
    /// The folder that the packages are in.
    place: String,
    /// The folder of their programs, where that is another one.
    programs: Option<String>,
}

impl From<Installed> for InstalledBody {
    fn from(installed: Installed) -> Self {
        let Installed { manager, packages, place, programs } = installed;
        Self { manager, packages, place, programs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;

    #[test]
    fn both_fields_are_given() {
        let new =
            NewInstall::from(read::<Install>(br#"{"manager": "pip", "packages": ["six==1.16.0"]}"#).unwrap());
        assert_eq!((new.manager.as_str(), new.packages.len()), ("pip", 1));
        for bad in [
            "{}",
            r#"{"manager": "pip"}"#,
            r#"{"packages": ["six"]}"#,
            r#"{"manager": "pip", "packages": ["-r x"]}"#,
            r#"{"manager": "pip", "packages": "six"}"#,
            r#"{"manager": "pip", "packages": ["six"], "index": "x"}"#,
        ] {
            assert!(read::<Install>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
