//! The catalogue of languages: one data file each under `data/`, and what follows from it.
//!
//! A file says how a language is found on a host, what its main file is called, how it is compiled and run, and how to
//! install what is missing. This crate turns that into plans (argument lists, environment, folders); it starts no
//! program and knows no sandbox. Whoever executes a plan promises the [`layout`] that it was written for.
//!
//! ```
//! use sandstorm_language::{Catalogue, Job, Roots};
//!
//! let language = Catalogue::embedded().get("py")?;
//! if let Ok(toolchain) = language.detect(&Roots::host()) {
//!     let code = "print(1)";
//!     let main = language.main_file_name(code);
//!     let job = Job { main: &main, code, files: &[], args: &[], memory_mib: 512 };
//!     let plan = language.run_plan(&toolchain, &job).expect("the main file is a plain name");
//!     assert_eq!(plan.argv[1], "/workspace/main.py");
//! }
//! # Ok::<(), sandstorm_language::UnknownLanguage>(())
//! ```

mod cache;
mod catalogue;
mod data;
mod detect;
mod error;
mod indentation;
mod language;
pub mod layout;
mod naming;
mod nearest;
mod packages;
mod plan;
mod roots;
mod template;
mod version;

pub use cache::{CacheKey, cache_key};
pub use catalogue::Catalogue;
pub use detect::{Missing, Toolchain};
pub use error::{PlanError, UnknownLanguage};
pub use language::{CompileLimits, Install, Language, PackageManager};
pub use packages::{Fit, Places, Programs, Recipe};
pub use plan::{CompilePlan, Job, Plan, SupportFile};
pub use roots::Roots;

/// What the toolchains and package managers of any host may need to show beside the host's own trees, as patterns like
/// `/etc/java-*-openjdk`: the same for every host, whatever it has installed.
pub fn mount_patterns() -> impl Iterator<Item = &'static str> {
    let languages = Catalogue::embedded().iter().flat_map(|language| &language.mounts);
    languages.chain(Recipe::all().flat_map(|recipe| &recipe.mounts)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::mount_patterns;

    #[test]
    fn toolchains_and_package_managers_have_what_they_show_in_the_list() {
        let all: Vec<&str> = mount_patterns().collect();
        for wanted in ["/etc/java-*-openjdk", "/etc/php/*/cli", "/etc/maven"] {
            assert!(all.contains(&wanted), "{wanted} is not among {all:?}");
        }
        let exact = |pattern: &&str| pattern.split('/').all(|name| name.matches('*').count() <= 1);
        assert!(all.iter().all(|pattern| pattern.starts_with("/etc/")) && all.iter().all(exact), "{all:?}");
    }
}
