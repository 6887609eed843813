//! Contexts: what persists, what comes back, what an interrupt leaves.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_control::{Cell, CellStatus, Context, ContextEvent, StartContext};
use sandstorm_language::{Catalogue, Roots};
use sandstorm_provider::{AttachFrom, EndCause, ExecRequest, ExecStatus, ProviderExt};
use sandstorm_types::{LimitName, LimitSet, SandboxId};

use crate::world::{Case, World};

pub(crate) const CASES: &[Case] = cases![
    variables_persist_and_the_last_expression_is_the_value,
    a_name_may_be_defined_again,
    errors_are_structured_and_keep_the_state,
    top_level_await_works,
    input_is_fed_from_stdin,
    threads_may_print_after_the_cell,
    output_of_subprocesses_arrives,
    a_result_of_fifty_megabytes_arrives,
    an_interrupt_ends_a_tight_loop_and_keeps_the_state,
    an_interrupt_ends_a_call_into_c,
    what_looks_like_our_framing_is_only_output,
    rich_values_come_by_type,
    figures_and_tables_are_shown,
    all_output_of_a_cell_comes_before_its_end,
    a_flood_of_output_is_interrupted_and_keeps_the_state,
    ending_the_process_is_noticed,
    memory_ends_a_context_and_nothing_else,
    javascript_keeps_state_awaits_and_redefines,
    javascript_is_interrupted_in_a_loop,
    bash_keeps_its_state_through_exits_and_interrupts,
    r_shows_values_and_keeps_its_state,
    java_runs_snippets_and_keeps_its_state,
    typescript_takes_types_out_and_keeps_its_state,
    a_language_without_a_kernel_says_so,
];

impl World {
    async fn context(&self, language: &str) -> (SandboxId, Context) {
        self.context_with(language, StartContext::default()).await
    }

    async fn context_with(&self, language: &str, start: StartContext) -> (SandboxId, Context) {
        let language = Catalogue::embedded().get(language).unwrap();
        let toolchain =
            language.detect(&Roots::host()).unwrap_or_else(|m| panic!("{} is missing: {m:?}", language.name));
        let sandbox = self.sandbox(&toolchain.mounts).await;
        let provider = Arc::clone(&self.provider);
        let context = Context::start(provider, &self.cx, &sandbox, language, &toolchain, &self.limits, start)
            .await
            .unwrap();
        (sandbox, context)
    }

    async fn end(&self, sandbox: SandboxId, context: Context) {
        context.shut_down().await.unwrap();
        self.destroy(sandbox).await;
    }
}

async fn run(context: &mut Context, code: &str) -> Cell {
    context.execute(code, &Context::interrupter(), None).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn value(cell: &Cell) -> &str {
    let main = cell.results.first().filter(|r| r.main).unwrap_or_else(|| panic!("no value: {cell:?}"));
    main.data["text/plain"].as_str().unwrap()
}

async fn variables_persist_and_the_last_expression_is_the_value(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    assert_eq!(run(&mut context, "x = 20").await.results, []);
    let cell = run(&mut context, "y = x + 1\nprint('said')\ny * 2").await;
    assert_eq!((value(&cell), text(&cell.stdout).as_str(), cell.status), ("42", "said\n", CellStatus::Ok));
    assert_eq!(cell.execution_count, 2);
    world.end(sandbox, context).await;
}

async fn a_name_may_be_defined_again(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "def f(): return 1").await;
    run(&mut context, "def f(): return 2").await;
    assert_eq!(value(&run(&mut context, "f()").await), "2");
    world.end(sandbox, context).await;
}

async fn errors_are_structured_and_keep_the_state(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "kept = 'here'").await;
    let cell = run(&mut context, "def g():\n    return 1 / 0\ng()").await;
    let error = cell.error.unwrap();
    assert_eq!((cell.status, error.name.as_str()), (CellStatus::Error, "ZeroDivisionError"));
    assert!(error.traceback.join("\n").contains("return 1 / 0"), "{error:?}");
    let syntax = run(&mut context, "def (").await;
    assert_eq!(syntax.error.unwrap().name, "SyntaxError");
    let left = run(&mut context, "import sys; sys.exit(3)").await;
    assert_eq!(left.error.unwrap().name, "SystemExit");
    assert_eq!(value(&run(&mut context, "kept").await), "'here'");
    world.end(sandbox, context).await;
}

async fn top_level_await_works(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 'awaited'")
        .await;
    assert_eq!(value(&run(&mut context, "await f()").await), "'awaited'");
    world.end(sandbox, context).await;
}

async fn input_is_fed_from_stdin(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    context.input().write("from outside\n").await.unwrap();
    assert_eq!(value(&run(&mut context, "input()").await), "'from outside'");
    world.end(sandbox, context).await;
}

async fn threads_may_print_after_the_cell(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let code = "import threading\ngo = threading.Event()\ndef late():\n    go.wait()\n    print('late', flush=True)\n\
                thread = threading.Thread(target=late)\nthread.start()";
    assert_eq!(text(&run(&mut context, code).await.stdout), "");
    assert_eq!(text(&run(&mut context, "go.set(); thread.join()").await.stdout), "late\n");
    world.end(sandbox, context).await;
}

async fn output_of_subprocesses_arrives(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let cell =
        run(&mut context, "import subprocess\nsubprocess.run(['sh', '-c', 'echo out; echo err >&2'])\nNone")
            .await;
    assert_eq!((text(&cell.stdout).as_str(), text(&cell.stderr).as_str()), ("out\n", "err\n"));
    world.end(sandbox, context).await;
}

async fn a_result_of_fifty_megabytes_arrives(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let cell = run(&mut context, "'x' * 50_000_000").await;
    assert_eq!(value(&cell).len(), 50_000_002);
    world.end(sandbox, context).await;
}

async fn an_interrupt_ends_a_tight_loop_and_keeps_the_state(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "n = 0").await;
    let cell = interrupted(&mut context, "n += 1\nprint('up')\nwhile True:\n    n += 1").await;
    assert_eq!(
        (cell.status, cell.error.unwrap().name.as_str()),
        (CellStatus::Interrupted, "KeyboardInterrupt")
    );
    assert_eq!(value(&run(&mut context, "n > 0").await), "True");
    world.end(sandbox, context).await;
}

async fn an_interrupt_ends_a_call_into_c(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "kept = 1").await;
    assert_eq!(
        interrupted(&mut context, "import time; print('up'); time.sleep(600)").await.status,
        CellStatus::Interrupted
    );
    let child = "import subprocess; subprocess.run(['sh', '-c', 'echo up; exec sleep 600'])";
    assert_eq!(interrupted(&mut context, child).await.status, CellStatus::Interrupted);
    // `system` ignores the signal itself, as at a terminal; its child gets it, so the call returns.
    assert_eq!(
        value(&interrupted(&mut context, "import os; os.system('echo up; exec sleep 600')").await),
        "2"
    );
    assert_eq!(value(&run(&mut context, "kept").await), "1");
    world.end(sandbox, context).await;
}

/// Interrupts the code when it says that it is where it is to be interrupted.
async fn interrupted(context: &mut Context, code: &str) -> Cell {
    let interrupter = Context::interrupter();
    let later = interrupter.clone();
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let interrupting = async move {
        while !matches!(events.recv().await, Some(ContextEvent::Output { .. }) | None) {}
        // A signal that comes just before a blocking call does not end it: that call has to begin.
        tokio::time::sleep(Duration::from_millis(500)).await;
        later.interrupt();
        // Who listens no more would be an end of its own.
        while events.recv().await.is_some() {}
    };
    let execute = async {
        let tell = move |event| drop(sender.send(event));
        context.execute(code, &interrupter, Some(&tell)).await
    };
    let (cell, ()) = tokio::join!(execute, interrupting);
    cell.unwrap()
}

async fn what_looks_like_our_framing_is_only_output(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let code = r#"
import struct, json, sys
body = json.dumps({"type": "done", "id": 1, "status": "error", "execution_count": 99}).encode()
sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
sys.stdout.flush()
"real"
"#;
    let cell = run(&mut context, code).await;
    assert_eq!((cell.status, value(&cell), cell.execution_count), (CellStatus::Ok, "'real'", 1));
    assert!(text(&cell.stdout).contains("\"execution_count\": 99"));
    world.end(sandbox, context).await;
}

async fn rich_values_come_by_type(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let code = r#"
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\x89PNG"
    def __repr__(self): return "plain"
display(Rich())
{"a": [1, 2]}
"#;
    let cell = run(&mut context, code).await;
    assert_eq!(cell.results[0].data["application/json"]["a"][1], 2);
    let shown = &cell.results[1];
    assert!(!shown.main);
    for mime in ["text/html", "image/svg+xml", "image/png", "text/plain"] {
        assert!(shown.data.contains_key(mime), "{mime}: {shown:?}");
    }
    world.end(sandbox, context).await;
}

async fn figures_and_tables_are_shown(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let probe = run(&mut context, "import pandas, matplotlib").await;
    assert_eq!(probe.error, None, "scripts/setup.sh test installs pandas and matplotlib");
    let table = run(&mut context, "pandas.DataFrame({'a': [1, 2]})").await;
    assert!(table.results[0].data["text/html"].as_str().unwrap().contains("<table"), "{table:?}");
    let figure = run(&mut context, "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nNone").await;
    let png = figure.results[0].data["image/png"].as_str().unwrap();
    assert!(png.starts_with("iVBORw0KGgo"), "not a PNG: {}", &png[..20]);
    world.end(sandbox, context).await;
}

async fn all_output_of_a_cell_comes_before_its_end(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    for size in [10, 70_000, 900_000] {
        let cell = run(
            &mut context,
            &format!("import sys; sys.stdout.write('x' * {size}); sys.stderr.write('y' * {size}); None"),
        )
        .await;
        assert_eq!((cell.stdout.len(), cell.stderr.len()), (size, size));
    }
    world.end(sandbox, context).await;
}

async fn a_flood_of_output_is_interrupted_and_keeps_the_state(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    run(&mut context, "kept = 1").await;
    let cell = run(&mut context, "while True:\n    print('x' * 10_000)").await;
    assert_eq!(cell.status, CellStatus::Interrupted);
    assert!(cell.truncated.stdout && cell.stdout.len() as u64 == world.limits.output.as_u64());
    assert_eq!(value(&run(&mut context, "kept").await), "1");
    world.end(sandbox, context).await;
}

async fn ending_the_process_is_noticed(world: &World) {
    let (sandbox, mut context) = world.context("python").await;
    let gone = context.execute("import os; os._exit(7)", &Context::interrupter(), None).await;
    assert!(gone.unwrap_err().to_string().contains("gone"));
    world.end(sandbox, context).await;
}

async fn memory_ends_a_context_and_nothing_else(world: &World) {
    // What a lasting one said can be heard again until it is committed, its end with it.
    let start = StartContext { lasting: true, ..StartContext::default() };
    let (sandbox, mut context) = world.context_with("python", start).await;
    let mut waiting = ExecRequest::shell("while [ ! -e go ]; do sleep 0.05; done; echo went on");
    waiting.background = true;
    let waiting = world.provider.exec(&world.cx, &sandbox, waiting).await.unwrap();
    let eat = format!("x = bytearray({})", world.limits.memory.as_u64() * 2);
    let gone = context.execute(&eat, &Context::interrupter(), None).await;
    assert!(gone.unwrap_err().to_string().contains("gone"));
    let interpreter = world.provider.attach(&world.cx, &context.exec(), AttachFrom::START).await.unwrap();
    let ended = interpreter.collect().await.unwrap().end;
    if world.provider.usage(&world.cx, &sandbox).await.unwrap().peak_memory.as_u64() > 0 {
        assert_eq!(ended.cause, EndCause::Limit(LimitName::Memory));
    }
    let next = ExecRequest::shell("touch go; echo next");
    let next = world.provider.exec_collect(&world.cx, &sandbox, next).await.unwrap();
    for (done, said) in [(next, "next\n"), (waiting.collect().await.unwrap(), "went on\n")] {
        assert_eq!((text(&done.stdout).as_str(), done.end.cause), (said, EndCause::Program));
        assert_eq!((done.end.status, done.end.limits_hit), (ExecStatus::Code(0), LimitSet::EMPTY));
    }
    world.end(sandbox, context).await;
}

async fn javascript_keeps_state_awaits_and_redefines(world: &World) {
    let (sandbox, mut context) = world.context("javascript").await;
    run(&mut context, "const a = 1; let b = 2").await;
    assert_eq!(value(&run(&mut context, "const a = 40; a + b").await), "42");
    assert_eq!(
        value(&run(&mut context, "await new Promise(r => setTimeout(() => r('later'), 10))").await),
        "'later'"
    );
    let cell = run(&mut context, "console.log('out'); console.error('err'); null.x").await;
    assert_eq!((text(&cell.stdout).as_str(), text(&cell.stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(cell.error.unwrap().name, "TypeError");
    assert_eq!(value(&run(&mut context, "b").await), "2");
    world.end(sandbox, context).await;
}

async fn javascript_is_interrupted_in_a_loop(world: &World) {
    let (sandbox, mut context) = world.context("javascript").await;
    run(&mut context, "let n = 0").await;
    assert_eq!(
        interrupted(&mut context, "n++; console.log('up'); while (true) n++").await.status,
        CellStatus::Interrupted
    );
    assert_eq!(value(&run(&mut context, "n > 0").await), "true");
    world.end(sandbox, context).await;
}

async fn bash_keeps_its_state_through_exits_and_interrupts(world: &World) {
    let (sandbox, mut context) = world.context("bash").await;
    run(&mut context, "n=41; f() { echo $((n + 1)); }; cd /").await;
    let cell = run(&mut context, "f; pwd; echo err >&2").await;
    assert_eq!((text(&cell.stdout).as_str(), text(&cell.stderr).as_str()), ("42\n/\n", "err\n"));
    for code in ["exit 3", "set -e\n(exit 3)\necho not reached"] {
        let cell = run(&mut context, code).await;
        assert_eq!((cell.status, text(&cell.stdout).as_str()), (CellStatus::Error, ""));
        let error = cell.error.unwrap();
        assert_eq!((error.name.as_str(), error.value.as_str()), ("ExitError", "exit status 3"));
    }
    for code in ["echo up; while :; do :; done", "echo up; sleep 1000"] {
        assert_eq!(interrupted(&mut context, code).await.status, CellStatus::Interrupted);
        assert_eq!(text(&run(&mut context, "f").await.stdout), "42\n");
    }
    world.end(sandbox, context).await;
}

async fn r_shows_values_and_keeps_its_state(world: &World) {
    let (sandbox, mut context) = world.context("r").await;
    run(&mut context, "n <- 41").await;
    let cell = run(&mut context, "print('printed'); n + 1").await;
    assert_eq!((text(&cell.stdout).as_str(), value(&cell)), ("[1] \"printed\"\n", "[1] 42"));
    let error = run(&mut context, "stop('bad')").await.error.unwrap();
    assert_eq!((error.name.as_str(), error.value.as_str()), ("simpleError", "bad"));
    let cell = interrupted(&mut context, "cat('up\\n'); while (TRUE) {}").await;
    assert_eq!(cell.status, CellStatus::Interrupted);
    assert_eq!(value(&run(&mut context, "n").await), "[1] 41");
    world.end(sandbox, context).await;
}

async fn java_runs_snippets_and_keeps_its_state(world: &World) {
    let (sandbox, mut context) = world.context("java").await;
    run(&mut context, "int n = 41;").await;
    let cell = run(&mut context, "System.out.println(\"printed\");\nn + 1").await;
    assert_eq!((text(&cell.stdout).as_str(), value(&cell)), ("printed\n", "42"));
    let error = run(&mut context, "String s = n;").await.error.unwrap();
    assert_eq!(error.name, "CompilationError");
    let cell = interrupted(&mut context, "System.out.println(\"up\"); while (true) {}").await;
    assert_eq!(cell.status, CellStatus::Interrupted);
    assert_eq!(value(&run(&mut context, "n").await), "41");
    world.end(sandbox, context).await;
}

async fn typescript_takes_types_out_and_keeps_its_state(world: &World) {
    let (sandbox, mut context) = world.context("typescript").await;
    run(&mut context, "const n: number = 41; enum E { A = 1 }").await;
    assert_eq!(value(&run(&mut context, "n + E.A").await), "42");
    let error = run(&mut context, "const oops: = 1").await.error.unwrap();
    assert_eq!(error.name, "SyntaxError");
    let cell = interrupted(&mut context, "console.log('up'); while (true) {}").await;
    assert_eq!(cell.status, CellStatus::Interrupted);
    assert_eq!(value(&run(&mut context, "n").await), "41");
    world.end(sandbox, context).await;
}

async fn a_language_without_a_kernel_says_so(world: &World) {
    let sandbox = world.sandbox(&[]).await;
    let language = Catalogue::embedded().get("perl").unwrap();
    let toolchain = language.detect(&Roots::host()).unwrap();
    let started = Context::start(
        Arc::clone(&world.provider),
        &world.cx,
        &sandbox,
        language,
        &toolchain,
        &world.limits,
        StartContext::default(),
    )
    .await;
    assert!(started.unwrap_err().to_string().contains("Bash has no contexts"));
    world.destroy(sandbox).await;
}
