//! As much of `sh -c` as combines the programs here: `;`, `&&`, `||`, quotes, variables, `>`, `>>`, `<`
//! and descriptors 1, 2, 3. What is not known is a syntax error, not a guess.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::Mutex;

use super::programs::{Input, Program, Sink};
use crate::ExecStatus;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;`, `&&`, `||`, `<`, `>`, `>>`, `<&`, `>&`.
    Operator(&'static str),
}

const OPERATORS: [&str; 9] = ["&&", "||", ">&", "<&", ">>", ";", "\n", ">", "<"];

pub(super) async fn run(program: &mut Program, script: &str) -> ExecStatus {
    let mut status = ExecStatus::Code(0);
    let mut rest = script;
    let mut skip = false;
    loop {
        // One command at a time is read, so that variables have the values of that moment.
        let (command, operator, tail) = match next_command(program, rest, status) {
            Ok(read) => read,
            Err(what) => return program.complain(&format!("sh: syntax error at {what}")).await,
        };
        if !skip && !command.is_empty() {
            match run_command(program, command).await {
                Ok(Flow::Went(went)) => status = went,
                Ok(Flow::Exit(last)) => return last,
                Err(what) => return program.complain(&format!("sh: {what}")).await,
            }
        }
        if matches!(status, ExecStatus::Signal(_)) {
            return status;
        }
        skip = match operator {
            Some("&&") => status != ExecStatus::Code(0),
            Some("||") => status == ExecStatus::Code(0),
            Some(_) => false,
            None => return status,
        };
        rest = tail;
    }
}

enum Flow {
    Went(ExecStatus),
    Exit(ExecStatus),
}

async fn run_command(program: &mut Program, tokens: Vec<Token>) -> Result<Flow, String> {
    let mut words = Vec::new();
    let mut child = program.clone();
    let mut file = None;
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let operator = match token {
            Token::Word(word) => {
                words.push(word);
                continue;
            }
            Token::Operator(operator) => operator,
        };
        let Some(Token::Word(target)) = tokens.next() else {
            return Err(format!("`{operator}` needs a target"));
        };
        let no_descriptor = || format!("{target}: bad file descriptor");
        match (operator, target.as_str()) {
            (">&", "1") => child.stdout = program.stdout.clone(),
            (">&", "2") => child.stdout = program.stderr.clone(),
            (">&", "3") => child.stdout = Sink::Channel(program.channel.clone().ok_or_else(no_descriptor)?),
            ("<&", "3") => child.stdin = Input::Channel(program.channel.clone().ok_or_else(no_descriptor)?),
            (">" | ">>", path) => {
                let path = program.resolve(path).ok_or_else(|| format!("{path}: cannot create"))?;
                let read = || program.world.read_tree(&program.sandbox, |tree| tree.read(&path)).ok()?.ok();
                let before = if operator == ">>" { read().unwrap_or_default() } else { Bytes::new() };
                let content = Arc::new(Mutex::new(BytesMut::from(before)));
                child.stdout = Sink::File(content.clone());
                file = Some((path, content));
            }
            ("<", path) => {
                let read =
                    |path| program.world.read_tree(&program.sandbox, |tree| tree.read(&path)).ok()?.ok();
                let bytes =
                    program.resolve(path).and_then(read).ok_or_else(|| format!("{path}: cannot open"))?;
                child.stdin = Input::from(bytes);
            }
            _ => return Err(no_descriptor()),
        }
    }
    let flow = run_words(program, &mut child, &words).await;
    if let Some((path, content)) = file {
        let bytes = content.lock().await.split().freeze();
        let written = program.world.change_tree(&program.sandbox, |tree| tree.write(&path, bytes));
        written.map_err(|_| format!("{path}: cannot create"))?;
    }
    Ok(flow)
}

/// Runs what changes the shell itself in the shell, all else in the child.
async fn run_words(shell: &mut Program, child: &mut Program, words: &[String]) -> Flow {
    let words_ref: Vec<&str> = words.iter().map(String::as_str).collect();
    match words_ref.as_slice() {
        [] => Flow::Went(ExecStatus::Code(0)),
        ["exit"] => Flow::Exit(ExecStatus::Code(0)),
        ["exit", code] => Flow::Exit(ExecStatus::Code(code.parse::<i32>().map_or(2, |code| code & 255))),
        ["read", name] => match child.stdin.line().await {
            Some(line) => {
                shell.env.insert((*name).to_owned(), line);
                Flow::Went(ExecStatus::Code(0))
            }
            None => Flow::Went(ExecStatus::Code(1)),
        },
        // `$$` was put in as 1: the shell is the only process that can be named.
        ["kill", signal, "1"] => match signal.strip_prefix('-').and_then(|number| number.parse().ok()) {
            Some(number) => Flow::Exit(ExecStatus::Signal(number)),
            None => Flow::Went(ExecStatus::Code(2)),
        },
        _ => Flow::Went(child.run(words).await),
    }
}

type Command<'a> = (Vec<Token>, Option<&'static str>, &'a str);

/// Reads one command, the operator that ends it and what follows.
fn next_command<'a>(program: &Program, script: &'a str, last: ExecStatus) -> Result<Command<'a>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = script;
    loop {
        if let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
            rest = &rest[operator.len()..];
            tokens.extend(word.take().map(Token::Word));
            match operator {
                ">" | ">>" | "<" | ">&" | "<&" => tokens.push(Token::Operator(operator)),
                _ => return Ok((tokens, Some(operator), rest)),
            }
            continue;
        }
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else {
            tokens.extend(word.take().map(Token::Word));
            return Ok((tokens, None, ""));
        };
        rest = letters.as_str();
        match letter {
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            '\'' => {
                let (text, tail) = rest.split_once('\'').ok_or("`'`")?;
                word.get_or_insert_default().push_str(text);
                rest = tail;
            }
            '"' => {
                let (text, tail) = rest.split_once('"').ok_or("`\"`")?;
                let word = word.get_or_insert_default();
                let mut quoted = text;
                while let Some((before, after)) = quoted.split_once('$') {
                    word.push_str(before);
                    quoted = variable(program, after, last, word);
                }
                word.push_str(quoted);
                rest = tail;
            }
            '$' => rest = variable(program, rest, last, word.get_or_insert_default()),
            '|' | '&' | '(' | ')' | '`' | '{' | '}' | '*' | '#' | '\\' => return Err(format!("`{letter}`")),
            other => word.get_or_insert_default().push(other),
        }
    }
}

/// Puts the value of the variable at the start of `text` into `word` and gives what follows its name.
fn variable<'a>(program: &Program, text: &'a str, last: ExecStatus, word: &mut String) -> &'a str {
    if let Some(rest) = text.strip_prefix('$') {
        word.push('1');
        return rest;
    }
    if let Some(rest) = text.strip_prefix('?') {
        let code = match last {
            ExecStatus::Code(code) => code,
            ExecStatus::Signal(signal) => 128 + signal,
        };
        word.push_str(&code.to_string());
        return rest;
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    word.push_str(program.env.get(name).map(String::as_str).unwrap_or_default());
    rest
}
