//! Working folders that lead out, if anything does.

use std::process::Command;

use crate::support::{Place, example, stderr, stdout};

#[test]
fn a_working_folder_is_one_inside_or_refused() {
    let starter = example("sandstorm-engine", "working_folder");
    let place = Place::new();
    let inside = [
        ("/workspace", "/workspace"),
        ("/workspace/to-root", "/"),
        ("/workspace/to-parent", "/"),
        ("/proc/self/root", "/"),
    ];
    let refused =
        ["/absent", "/root", "/etc/passwd", "/proc/1/cwd", "/proc/1/root", "/workspace/to-descriptor"];
    let descriptors: Vec<String> = (0..64).map(|number| format!("/proc/self/fd/{number}")).collect();
    let output = Command::new(starter)
        .arg(place.path().join("runtime"))
        .args(inside.map(|(folder, _)| folder))
        .args(refused)
        .args(&descriptors)
        .output()
        .unwrap();
    let refused = refused.iter().copied().chain(descriptors.iter().map(String::as_str));
    // Each line is where the program was and which folders of the host it saw from there: none.
    let wanted: String = inside
        .into_iter()
        .chain(refused.map(|folder| (folder, "refused")))
        .map(|(a, b)| format!("{a}: {b}\n"))
        .collect();
    assert_eq!(stdout(&output), wanted, "{}", stderr(&output));
}
