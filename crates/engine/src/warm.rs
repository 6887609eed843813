//! Which programs a guest interpreter can run just as a process of their own would.
//!
//! A guest was started before anybody knew the program. What an interpreter and the libraries below it read only when they
//! start, it has read already, from the zygote's environment: a program that wants that otherwise is started the usual way.

use std::path::Path;

use sandstorm_agent::protocol::Program;

/// The variables of Python that a zygote was started with; they decide how it buffers, decodes and caches.
const PYTHON: [(&str, &str); 3] =
    [("PYTHONDONTWRITEBYTECODE", "1"), ("PYTHONUNBUFFERED", "1"), ("PYTHONUTF8", "1")];

/// Only looked at when a script is run, so a guest heeds it.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Read by the loader, the C library and numeric libraries when a process starts.
const READ_AT_START: [&str; 9] =
    ["LD_", "MALLOC_", "GLIBC_TUNABLES", "OPENBLAS_", "OMP_", "MKL_", "LC_", "LANGUAGE", "LOCPATH"];

const LANG: (&str, &str) = ("LANG", "C.UTF-8");

/// Whether a guest that is this interpreter runs the program as it should.
pub(crate) fn fits(program: &Program, interpreter: &Path) -> bool {
    let plain = !program.root && program.terminal.is_none();
    plain && is_script(&program.argv, interpreter) && is_compatible(&program.env)
}

/// `interpreter script arguments…`: options and code on the command line are for an interpreter that starts.
fn is_script(argv: &[String], interpreter: &Path) -> bool {
    match argv {
        [program, script, ..] => {
            Path::new(program) == interpreter && !script.is_empty() && !script.starts_with('-')
        }
        _ => false,
    }
}

fn is_compatible(env: &[(String, String)]) -> bool {
    let has = |(name, value): &(&str, &str)| env.iter().any(|(n, v)| n == name && v == value);
    let allows = |(name, value): &(String, String)| {
        let pair = (name.as_str(), value.as_str());
        if name.starts_with("PYTHON") {
            name == PYTHON_PATH || PYTHON.contains(&pair)
        } else if name == LANG.0 {
            pair == LANG
        } else {
            !READ_AT_START.iter().any(|begin| name.starts_with(begin))
        }
    };
    PYTHON.iter().all(has) && has(&LANG) && env.iter().all(allows)
}

#[cfg(test)]
mod tests {
    use sandstorm_agent::protocol::TerminalSize;

    use super::*;

    const INTERPRETER: &str = "/usr/bin/python3";

    fn program(argv: &[&str], more: &[(&str, &str)]) -> Program {
        let usual = [("PATH", "/usr/bin"), ("HOME", "/home/user"), LANG];
        let env = usual.iter().chain(&PYTHON).filter(|(name, _)| more.iter().all(|(other, _)| other != name));
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Program {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            env: env.chain(more).map(owned).collect(),
            cwd: "/workspace".to_owned(),
            ..Program::default()
        }
    }

    fn fits(program: &Program) -> bool {
        super::fits(program, Path::new(INTERPRETER))
    }

    #[test]
    fn scripts_of_the_interpreter_fit() {
        for argv in [&[INTERPRETER, "main.py"][..], &[INTERPRETER, "/x/a.py", "-c", "--"]] {
            assert!(fits(&program(argv, &[])), "{argv:?}");
        }
        let others = [
            &[][..],
            &[INTERPRETER],
            &[INTERPRETER, ""],
            &[INTERPRETER, "-"],
            &[INTERPRETER, "-c", "1"],
            &[INTERPRETER, "-m", "http.server"],
            &["/usr/bin/python3.11", "main.py"],
            &["python3", "main.py"],
            &["/bin/sh", "main.py"],
        ];
        for argv in others {
            assert!(!fits(&program(argv, &[])), "{argv:?}");
        }
    }

    #[test]
    fn variables_that_are_read_at_the_start_do_not_fit() {
        let script = [INTERPRETER, "main.py"];
        for fine in [("PYTHONPATH", "/lib"), ("A", "1"), ("TZ", "UTC"), ("MPLBACKEND", "agg"), ("LD", "x")] {
            assert!(fits(&program(&script, &[fine])), "{fine:?}");
        }
        let others = [
            ("PYTHONUTF8", "0"),
            ("PYTHONUNBUFFERED", ""),
            ("PYTHONHASHSEED", "0"),
            ("PYTHONHOME", "/x"),
            ("PYTHONPATHS", "/x"),
            ("LANG", "de_DE.UTF-8"),
            ("LC_ALL", "C"),
            ("LANGUAGE", "de"),
            ("LD_PRELOAD", "x.so"),
            ("LD_LIBRARY_PATH", ""),
            ("MALLOC_ARENA_MAX", "1"),
            ("GLIBC_TUNABLES", "x"),
            ("OMP_NUM_THREADS", "2"),
            ("OPENBLAS_NUM_THREADS", "2"),
            ("MKL_NUM_THREADS", "2"),
        ];
        for other in others {
            assert!(!fits(&program(&script, &[other])), "{other:?}");
        }
        for missing in ["PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "LANG"] {
            let mut program = program(&script, &[]);
            program.env.retain(|(name, _)| name != missing);
            assert!(!fits(&program), "without {missing}");
        }
    }

    #[test]
    fn nobody_becomes_root_or_gets_a_terminal() {
        let plain = program(&[INTERPRETER, "main.py"], &[]);
        assert!(!fits(&Program { root: true, ..plain.clone() }));
        assert!(!fits(&Program { terminal: Some(TerminalSize { rows: 1, columns: 1 }), ..plain }));
    }
}
