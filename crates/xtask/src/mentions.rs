//! Names that would make the tree work on one machine only: places on the disk
//! of whoever runs this check, and hosts of package registries. Which index a
//! package comes from is the operator's setting.

use std::path::Path;

use crate::report::Report;
use crate::tree::Tree;

/// Labels apart, so that this file does not trip over itself.
const REGISTRY_HOSTS: &[&[&str]] = &[
    &["crates", "io"],
    &["pypi", "org"],
    &["pythonhosted", "org"],
    &["npmjs", "org"],
    &["npmjs", "com"],
    &["yarnpkg", "com"],
    &["proxy", "golang", "org"],
    &["sum", "golang", "org"],
    &["maven", "org"],
    &["maven", "apache", "org"],
    &["rubygems", "org"],
    &["deb", "debian", "org"],
];

/// Written by package managers, which record where they fetched from.
const LOCKFILES: &[&str] = &["Cargo.lock", "package-lock.json", "uv.lock", "go.sum"];

/// Folders that exist on any machine and that our text may name.
const SHARED_PLACES: &[&str] =
    &["/", "/root", "/home", "/home/user", "/tmp", "/var/tmp", "/opt", "/srv", "/usr/src", "/workspace"];

/// The checkout, the folder that it stands in and the home of who runs the
/// check, unless they are places that every machine has.
pub(crate) fn private_places(root: &Path, home: Option<&Path>) -> Vec<String> {
    let places = [Some(root), root.parent(), home];
    let names = places.into_iter().flatten().filter_map(Path::to_str);
    names.filter(|place| !SHARED_PLACES.contains(place)).map(str::to_owned).collect()
}

pub(crate) fn check(tree: &Tree, private_places: &[String], report: &mut Report) {
    // Linux has no such folder, so whoever wrote it was looking at another disk.
    let foreign_homes = ["", "Users", ""].join("/");
    let hosts: Vec<String> = REGISTRY_HOSTS.iter().map(|labels| labels.join(".")).collect();
    for (path, text) in tree.files() {
        if LOCKFILES.iter().any(|name| path == *name || path.ends_with(&format!("/{name}"))) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if private_places.iter().any(|place| names_place(line, place)) || line.contains(&foreign_homes) {
                report.error(format!("{path}:{number}: a path of one developer's machine"));
            }
            for host in hosts.iter().filter(|host| names_host(line, host)) {
                report
                    .error(format!("{path}:{number}: the package registry {host} is the operator's setting"));
            }
        }
    }
}

/// `place` itself or something below it; `/a/b` is not in `/a/bc`.
fn names_place(line: &str, place: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    line.match_indices(place).any(|(at, _)| {
        let before = &line[..at];
        !before.ends_with(|c: char| goes_on(c) || c == '/') && !line[at + place.len()..].starts_with(goes_on)
    })
}

fn names_host(line: &str, host: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    line.match_indices(host)
        .any(|(at, _)| !line[..at].ends_with(goes_on) && !line[at + host.len()..].starts_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        let places = private_places(Path::new("/data/ada/sandstorm"), Some(Path::new("/home/ada")));
        check(&Tree::of(&[(path, text)]), &places, &mut report);
        report.errors
    }

    #[test]
    fn a_path_of_the_checkout_or_beside_it_is_an_error() {
        assert_eq!(
            errors("a.md", "ok\nsee /data/ada/sandstorm/x\n"),
            ["a.md:2: a path of one developer's machine"]
        );
        assert_eq!(errors("a.rs", "include_str!(\"/data/ada/notes.txt\")").len(), 1);
        assert_eq!(errors("a.sh", "export PATH=/home/ada/bin").len(), 1);
        assert_eq!(errors("a.md", &["", "Users", "ada", "src"].join("/")).len(), 1);
    }

    #[test]
    fn a_place_that_only_looks_alike_is_fine() {
        assert!(errors("a.md", "/data/adam/x /home/ada-lovelace/x /srv/data/ada/x").is_empty());
    }

    #[test]
    fn places_that_every_machine_has_are_not_private() {
        assert!(private_places(Path::new("/tmp/sandstorm"), Some(Path::new("/root"))) == ["/tmp/sandstorm"]);
    }

    #[test]
    fn a_registry_host_is_an_error_outside_lockfiles() {
        let line = format!("index = \"https://{}/simple\"", REGISTRY_HOSTS[1].join("."));
        assert_eq!(errors("docs/a.md", &line).len(), 1);
        assert_eq!(errors("a.toml", &format!("files.{}", REGISTRY_HOSTS[2].join("."))).len(), 1);
        assert!(errors("Cargo.lock", &line).is_empty());
        assert!(errors("web/package-lock.json", &line).is_empty());
    }

    #[test]
    fn a_name_that_only_contains_a_host_is_fine() {
        let host = REGISTRY_HOSTS[0].join(".");
        assert!(errors("a.md", &format!("my{host} {host}ta")).is_empty());
    }
}
