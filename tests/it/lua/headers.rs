//! Compares the header of every script with its body and with the call from Rust, so that it cannot drift.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use zticket::store::redis::scripts::{SOURCES, Source};

pub struct Header {
    does: String,
    version: u32,
    stage: String,
    pub keys: Vec<String>,
    argv: Vec<Argument>,
    replies: BTreeMap<String, Words>,
    keeps: bool,
}

struct Argument {
    name: String,
    /// Stands for any number of arguments from here on.
    variadic: bool,
}

/// What follows the word of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Words {
    Count(usize),
    Any,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("lua")
}

/// The comment at the top, without its dashes, and all that follows it.
fn split(source: &Source) -> (Vec<&'static str>, &'static str) {
    let (shebang, mut rest) = source.text.split_once('\n').unwrap();
    let known = ["#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes"];
    assert!(known.contains(&shebang), "{}: begins with {shebang:?}", source.name);
    let mut header = Vec::new();
    while let Some(line) = rest.strip_prefix("--") {
        let (line, after) = line.split_once('\n').unwrap();
        header.push(line.trim());
        rest = after;
    }
    (header, rest)
}

pub fn body(source: &Source) -> &'static str {
    split(source).1
}

fn header(source: &Source) -> Header {
    let (lines, _) = split(source);
    let title = source.name.trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start_matches('_');
    let does = lines[0].strip_prefix(title).and_then(|rest| rest.strip_prefix(": "));
    let does = does.unwrap_or_else(|| panic!("{}: the second line says what {title} does", source.name));
    let facts: Vec<&str> = lines[1].split(" | ").collect();
    let version = facts[0].strip_prefix("version ").and_then(|version| version.parse().ok());
    let mut header = Header {
        does: does.to_owned(),
        version: version.unwrap_or_else(|| panic!("{}: the third line begins with a version", source.name)),
        stage: facts[1].to_owned(),
        keys: Vec::new(),
        argv: Vec::new(),
        replies: BTreeMap::new(),
        keeps: false,
    };
    for line in &lines[2..] {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(&"KEYS") => {
                header.keys.push(words[2].to_owned());
                assert_eq!(words[1], header.keys.len().to_string(), "{}: {line}", source.name);
            }
            Some(&"ARGV") => {
                // In JSON the dots belong to the list inside.
                let variadic = line.contains('…') && words.get(3) != Some(&"json");
                header.argv.push(Argument { name: words[2].to_owned(), variadic });
                assert_eq!(words[1], header.argv.len().to_string(), "{}: {line}", source.name);
            }
            Some(&"REPLY") => {
                // Two spaces end what is returned and begin what it means.
                let returned = line["REPLY ".len()..].split("  ").next().unwrap();
                let rest: Vec<&str> = returned.split(' ').skip(1).collect();
                let rest = if rest.contains(&"…") { Words::Any } else { Words::Count(rest.len()) };
                assert!(header.replies.insert(words[1].to_owned(), rest).is_none(), "{}: {line}", source.name);
            }
            Some(&"KEEPS") => header.keeps = words.len() > 1,
            _ => {}
        }
    }
    header
}

/// What stands between the brackets of every `name[…]`.
fn indices<'a>(body: &'a str, name: &str) -> Vec<&'a str> {
    let opening = format!("{name}[");
    let starts = body.match_indices(&opening).map(|(at, _)| &body[at + opening.len()..]);
    starts.map(|rest| &rest[..closing(rest, '[', ']')]).collect()
}

/// Where the bracket closes that was open at the start of `text`.
pub fn closing(text: &str, open: char, close: char) -> usize {
    let (mut depth, mut quoted) = (1, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            _ if letter == open => depth += 1,
            _ if letter == close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("{open} is never closed: {text}")
}

/// Every reply in a body: its word and how many values follow it.
fn replies(body: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (at, _) in body.match_indices("{ '") {
        let inside = &body[at + 1..];
        let inside = &inside[..closing(inside, '{', '}')];
        let word = inside.trim_start_matches(" '").split('\'').next().unwrap();
        if word.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_') {
            let (mut depth, mut quoted, mut commas) = (0, false, 0);
            for letter in inside.chars() {
                match letter {
                    '\'' => quoted = !quoted,
                    '(' | '[' if !quoted => depth += 1,
                    ')' | ']' if !quoted => depth -= 1,
                    ',' if !quoted && depth == 0 => commas += 1,
                    _ => {}
                }
            }
            found.push((word, commas));
        }
    }
    found
}

pub fn each(check: impl Fn(&'static Source, Header, &'static str)) {
    for source in SOURCES {
        check(source, header(source), body(source));
    }
}

#[test]
fn every_file_is_a_known_script_and_every_script_has_a_file() {
    let files: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".lua").map(str::to_owned))
        .collect();
    let known: BTreeSet<String> = SOURCES.iter().map(|source| source.name.to_owned()).collect();
    assert_eq!(files, known);
    for source in SOURCES {
        let file = fs::read_to_string(folder().join(format!("{}.lua", source.name))).unwrap();
        assert_eq!(file, source.text, "{}", source.name);
    }
}

#[test]
fn a_header_names_purpose_stage_and_invariants() {
    each(|source, header, _| {
        assert!(header.does.len() > 20 && header.does.ends_with('.'), "{}: {}", source.name, header.does);
        assert!(header.version > 0, "{}", source.name);
        let stage = match source.name.split_once('_') {
            Some((digit, _)) if digit.parse::<u8>().is_ok() => format!("stage {digit}"),
            _ => "any stage".to_owned(),
        };
        assert_eq!(header.stage, stage, "{}", source.name);
        assert!(header.keeps, "{}: a KEEPS line says what stays true", source.name);
    });
}

#[test]
fn the_keys_of_a_header_are_those_of_the_call() {
    each(|source, header, _| {
        let called: Vec<&str> = source.keys.iter().map(|key| key.name()).collect();
        assert_eq!(header.keys, called, "{}", source.name);
    });
}

#[test]
fn a_body_uses_every_declared_argument_and_no_other() {
    each(|source, header, body| {
        let literal: BTreeSet<usize> = indices(body, "ARGV").iter().filter_map(|index| index.parse().ok()).collect();
        let last = header.argv.len();
        for (number, argument) in (1..).zip(&header.argv) {
            assert!(!argument.variadic || number == last, "{}: only the last can be many", source.name);
            if argument.variadic {
                let walk = format!("for i = {number}, #ARGV");
                assert!(body.contains(&walk), "{}: ARGV {} is walked from {number}", source.name, argument.name);
            } else {
                assert!(literal.contains(&number), "{}: ARGV {} is not used", source.name, argument.name);
            }
        }
        assert!(literal.iter().all(|number| (1..=last).contains(number)), "{}: ARGV {literal:?}", source.name);
        let many = header.argv.last().is_some_and(|argument| argument.variadic);
        assert_eq!(body.contains("#ARGV"), many, "{}: #ARGV", source.name);
    });
}

#[test]
fn the_replies_of_a_header_are_those_of_the_body_and_of_the_call() {
    each(|source, header, body| {
        let declared: BTreeSet<&str> = header.replies.keys().map(String::as_str).collect();
        let called: BTreeSet<&str> = source.replies.iter().copied().collect();
        assert_eq!(declared, called, "{}: header and call", source.name);
        let returned: BTreeSet<&str> = replies(body).into_iter().map(|(word, _)| word).collect();
        assert_eq!(declared, returned, "{}: header and body", source.name);
        for (word, values) in replies(body) {
            let promised = &header.replies[word];
            let kept = *promised == Words::Any || *promised == Words::Count(values);
            assert!(kept, "{}: {word} comes with {values} values, {promised:?} were promised", source.name);
        }
        let on_an_event = !matches!(source.name, "5_event_forget" | "5_event_restore" | "event_read" | "ranking_set");
        assert_eq!(declared.contains("UNREADY"), on_an_event, "{}", source.name);
    });
}

#[test]
fn a_script_reads_the_clock_of_redis_at_most_once() {
    each(|source, _, body| {
        assert!(body.matches("'TIME'").count() <= 1, "{}: one moment a call", source.name);
        assert!(!body.contains("os.time") && !body.contains("math.random"), "{}", source.name);
    });
}

#[test]
fn a_changed_body_has_a_new_version() {
    let file = fs::read_to_string(folder().join("VERSIONS")).unwrap_or_default();
    let mut known: BTreeMap<&str, &str> =
        file.lines().filter_map(|line| Some((line.split_whitespace().next()?, line.trim()))).collect();
    let mut wrong = Vec::new();
    for source in SOURCES {
        let version = header(source).version;
        let before = known.remove(source.name).unwrap_or_default();
        if before == line(source, version) {
            continue;
        }
        let (next, raise) = match before.split_whitespace().nth(1) == Some(&version.to_string()) {
            true => (version + 1, format!("the body changed: make it version {} in its header and ", version + 1)),
            false => (version, String::new()),
        };
        wrong.push(format!("{}: {raise}put this line in lua/VERSIONS: {}", source.name, line(source, next)));
    }
    wrong.extend(known.keys().map(|name| format!("{name}: take its line out of lua/VERSIONS")));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The line of `VERSIONS` for a script. Comments in the header can be reworded freely: only the body counts.
fn line(source: &Source, version: u32) -> String {
    let hash = blake3::hash(body(source).as_bytes()).to_hex();
    format!("{} {version} {}", source.name, &hash[..16])
}
