use std::path::PathBuf;

use super::*;
use crate::Catalogue;

fn language(name: &str) -> &'static Language {
    Catalogue::embedded().get(name).unwrap()
}

fn toolchain(language: &Language) -> Toolchain {
    let programs =
        language.programs.keys().map(|name| (name.clone(), PathBuf::from(format!("/usr/bin/{name}"))));
    Toolchain { programs: programs.collect(), mounts: Vec::new(), version: None }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn job<'a>(main: &'a str, code: &'a str, files: &'a [String], args: &'a [String]) -> Job<'a> {
    Job { main, code, files, args, memory_mib: 512 }
}

fn compile(name: &str, job: &Job<'_>) -> Plan {
    language(name).compile_plan(&toolchain(language(name)), job).unwrap().unwrap().plan
}

fn run(name: &str, job: &Job<'_>) -> Result<Plan, PlanError> {
    language(name).run_plan(&toolchain(language(name)), job)
}

#[test]
fn arguments_stay_apart_whatever_they_hold() {
    let args = strings(&["a b", "", "$(id)", "{main}"]);
    let plan = run("python", &job("main.py", "", &[], &args)).unwrap();
    assert_eq!(plan.argv, ["/usr/bin/python", "/workspace/main.py", "a b", "", "$(id)", "{main}"]);
    assert_eq!(plan.cwd, "/workspace");
    assert_eq!(plan.env["PYTHONDONTWRITEBYTECODE"], "1");
    let plan = run("bash", &job("-c; id.sh", "", &[], &[])).unwrap();
    assert_eq!(plan.argv, ["/usr/bin/bash", "/workspace/-c; id.sh"]);
}

#[test]
fn sources_are_the_languages_own_and_sorted() {
    let files = strings(&["z.c", "main.c", "lib/a.c", "a.h", "notes.txt", "z.c"]);
    let plan = compile("c", &job("main.c", "", &files, &[]));
    let sources: Vec<_> = plan.argv.iter().filter(|arg| arg.ends_with(".c")).collect();
    assert_eq!(sources, ["/workspace/main.c", "/workspace/lib/a.c", "/workspace/z.c"]);
    let other_order = strings(&["lib/a.c", "a.h", "z.c"]);
    assert_eq!(compile("c", &job("main.c", "", &other_order, &[])), plan);
}

#[test]
fn a_go_package_is_a_folder_and_a_module_is_built_as_one() {
    let files = strings(&["cmd/main.go", "cmd/util.go", "cmd/util_test.go", "other.go"]);
    let plan = compile("go", &job("cmd/main.go", "", &files, &[]));
    let package = ["/workspace/cmd/main.go", "/workspace/cmd/util.go"];
    assert_eq!(plan.argv[..4], ["/usr/bin/go", "build", "-o", "/tmp/build/main"]);
    assert_eq!(plan.argv[4..], package);
    assert_eq!(plan.env["GOCACHE"], "/tmp/warm");
    let files = strings(&["go.mod", "cmd/main.go"]);
    let plan = compile("go", &job("cmd/main.go", "", &files, &[]));
    assert_eq!(plan.argv.last().unwrap(), "/workspace/cmd");
    assert_eq!(plan.env["GOCACHE"], "/tmp/warm");
    assert_eq!(plan.env["GOPROXY"], "off");
}

#[test]
fn java_files_and_entries_follow_the_code() {
    let java = language("java");
    assert_eq!(java.main_file_name("class A { public static void main(String[] a) {} }"), "Main.java");
    let code = "package demo; public class App { public static void main(String[] a) {} }";
    assert_eq!(java.main_file_name(code), "App.java");
    let args = strings(&["x"]);
    let plan = run("java", &job("App.java", code, &[], &args)).unwrap();
    assert_eq!(plan.argv[plan.argv.len() - 2..], ["demo.App", "x"]);
    assert!(plan.argv.contains(&"-Xmx640m".to_owned()));
    let plan = run("java", &job("src/Broken.java", "}", &[], &[])).unwrap();
    assert_eq!(plan.argv.last().unwrap(), "Broken");
}

#[test]
fn scripts_and_modules_get_their_names() {
    assert_eq!(language("javascript").main_file_name("require('fs')"), "main.js");
    assert_eq!(language("javascript").main_file_name("import fs from 'fs'"), "main.mjs");
    assert_eq!(language("typescript").main_file_name("import fs from 'fs'"), "main.ts");
    assert_eq!(language("typescript").main_file_name("await f()"), "main.mts");
    assert_eq!(language("python").main_file_name("public class X {}"), "main.py");
}

#[test]
fn typescript_brings_its_declarations_and_runs_what_it_made() {
    let plan = compile("typescript", &job("src/app.mts", "", &[], &[]));
    assert_eq!(plan.files[0].path, "/tmp/support/node.d.ts");
    assert!(plan.files[0].text.contains("declare module \"node:fs\""));
    assert_eq!(plan.argv[plan.argv.len() - 2..], ["/tmp/support/node.d.ts", "/workspace/src/app.mts"]);
    let plan = run("typescript", &job("src/app.mts", "", &[], &[])).unwrap();
    assert_eq!(plan.argv.last().unwrap(), "/tmp/build/src/app.mjs");
    assert!(plan.files.is_empty());
}

#[test]
fn memory_reaches_the_runtimes() {
    let job = Job { memory_mib: 1000, ..job("main.go", "", &[], &[]) };
    assert_eq!(run("go", &job).unwrap().env["GOMEMLIMIT"], "900MiB");
    let job = Job { main: "main.js", ..job };
    assert!(run("javascript", &job).unwrap().argv.contains(&"--max-old-space-size=1250".to_owned()));
}

#[test]
fn what_cannot_be_done_is_refused() {
    let args = strings(&["x"]);
    assert!(matches!(run("sql", &job("main.sql", "", &[], &args)), Err(PlanError::NoArguments(_))));
    for name in ["/etc/passwd", "../x.py", "a//b.py", "", "a/./b.py", "a\0.py"] {
        assert_eq!(run("python", &job(name, "", &[], &[])), Err(PlanError::FileName(name.to_owned())));
    }
    let files = strings(&["ok.c", "../../etc/x.c"]);
    let c = language("c");
    let refused = c.compile_plan(&toolchain(c), &job("ok.c", "", &files, &[])).unwrap_err();
    assert_eq!(refused, PlanError::FileName("../../etc/x.c".to_owned()));
    let refused = c.compile_plan(&toolchain(c), &job("program", "", &[], &[])).unwrap_err();
    assert!(matches!(refused, PlanError::Extension { .. }));
    assert!(run("python", &job("program", "", &[], &[])).is_ok(), "an interpreter reads any file");
}

#[test]
fn every_language_plans() {
    for language in Catalogue::embedded().iter() {
        let main = language.main_file_name("");
        let job = job(&main, "", &[], &[]);
        let toolchain = toolchain(language);
        let compiled = language.compile_plan(&toolchain, &job).unwrap();
        assert_eq!(compiled.is_some(), language.is_compiled());
        let argv = language.run_plan(&toolchain, &job).unwrap().argv;
        assert!(argv[0].starts_with('/'), "{argv:?}");
        let left =
            argv.iter().chain(compiled.iter().flat_map(|c| &c.plan.argv)).find(|arg| arg.contains('{'));
        assert_eq!(left, None);
    }
}

#[test]
fn kernels_are_started_with_what_they_need() {
    let plan = |name: &str| language(name).kernel_plan(&toolchain(language(name))).unwrap();
    for (name, argv) in [
        ("bash", "/usr/bin/bash /opt/support/bash.sh"),
        ("r", "/usr/bin/rscript --vanilla /opt/support/r.R"),
        ("typescript", "/usr/bin/node --no-force-async-hooks-checks /opt/support/typescript.js /usr/bin/tsc"),
    ] {
        let plan = plan(name).unwrap();
        assert_eq!(plan.argv.join(" "), argv.replace("/opt/support", SUPPORT), "{name}");
        assert_eq!(plan.files.len(), 1);
        assert!(plan.argv.contains(&plan.files[0].path));
    }
    assert_eq!(plan("java").unwrap().argv.last().unwrap(), &format!("{SUPPORT}/java.java"));
    assert!(plan("perl").is_none());
}

#[test]
fn kernels_say_whether_they_need_a_channel() {
    for language in Catalogue::embedded().iter() {
        let anywhere = matches!(language.name.as_str(), "javascript" | "python" | "typescript");
        let somewhere = anywhere || matches!(language.name.as_str(), "bash" | "java" | "r");
        assert_eq!(language.has_contexts(), somewhere, "{}", language.name);
        assert_eq!(language.has_contexts_without_channels(), anywhere, "{}", language.name);
    }
}
