//! The data files, compiled in.

/// Name and text of every language's file.
pub(crate) const LANGUAGES: &[(&str, &str)] = &[
    ("bash", include_str!("../data/bash.toml")),
    ("c", include_str!("../data/c.toml")),
    ("cpp", include_str!("../data/cpp.toml")),
    ("csharp", include_str!("../data/csharp.toml")),
    ("go", include_str!("../data/go.toml")),
    ("java", include_str!("../data/java.toml")),
    ("javascript", include_str!("../data/javascript.toml")),
    ("lua", include_str!("../data/lua.toml")),
    ("perl", include_str!("../data/perl.toml")),
    ("php", include_str!("../data/php.toml")),
    ("python", include_str!("../data/python.toml")),
    ("r", include_str!("../data/r.toml")),
    ("ruby", include_str!("../data/ruby.toml")),
    ("rust", include_str!("../data/rust.toml")),
    ("sql", include_str!("../data/sql.toml")),
    ("typescript", include_str!("../data/typescript.toml")),
];

/// Name and text of every package manager's recipe.
pub(crate) const PACKAGES: &[(&str, &str)] = &[
    ("cargo", include_str!("../packages/cargo.toml")),
    ("gem", include_str!("../packages/gem.toml")),
    ("go", include_str!("../packages/go.toml")),
    ("maven", include_str!("../packages/maven.toml")),
    ("npm", include_str!("../packages/npm.toml")),
    ("pip", include_str!("../packages/pip.toml")),
    ("uv", include_str!("../packages/uv.toml")),
];

/// Files that a compiler needs beside the user's.
pub(crate) const SUPPORT: &[(&str, &str)] = &[("node.d.ts", include_str!("../support/node.d.ts"))];

/// The Python kernel is one file. What cells take from IPython is a text in it, compiled at its first use.
const PYTHON_KERNEL: &str = concat!(
    "IPYTHON = r'''",
    include_str!("../kernels/ipython.py"),
    "'''\n",
    include_str!("../kernels/python.py")
);

/// The TypeScript kernel is the JavaScript one behind a translator.
const TYPESCRIPT_KERNEL: &str =
    concat!(include_str!("../kernels/typescript.js"), include_str!("../kernels/javascript.js"));

/// Kernels of contexts.
pub(crate) const KERNELS: &[(&str, &str)] = &[
    ("bash.sh", include_str!("../kernels/bash.sh")),
    ("java.java", include_str!("../kernels/java.java")),
    ("javascript.js", include_str!("../kernels/javascript.js")),
    ("python.py", PYTHON_KERNEL),
    ("r.R", include_str!("../kernels/r.R")),
    ("typescript.js", TYPESCRIPT_KERNEL),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_holds_what_cells_take_from_ipython_as_a_raw_text() {
        let text = include_str!("../kernels/ipython.py");
        assert!(!text.contains("'''") && text.ends_with('\n'), "the text would end early");
    }

    #[test]
    fn lists_and_folders_agree() {
        for (folder, list) in [("data", LANGUAGES), ("packages", PACKAGES)] {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            let mut found: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort();
            let listed: Vec<String> = list.iter().map(|(name, _)| format!("{name}.toml")).collect();
            assert_eq!(found, listed);
        }
    }

    #[test]
    fn kernels_are_texts_that_shells_and_runtimes_read_whole() {
        for (name, text) in KERNELS {
            assert!(text.ends_with('\n') && !text.contains('\0'), "{name}");
        }
        // Bash is given its text as one argument.
        let bash = include_str!("../kernels/bash.sh");
        assert!(bash.len() < 64 << 10, "{} bytes", bash.len());
    }
}
