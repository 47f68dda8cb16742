//! The layers of `src/lib.rs`: modules use only what stands below them, and no two modules use each other, at any depth.
//! The sources are read as text, so that the message can name the line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// One mention of a module in another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    from: Vec<String>,
    to: Vec<String>,
    /// File, line number and text.
    at: String,
}

/// The sources by their module path, with the file name for messages.
type Sources = BTreeMap<Vec<String>, (String, String)>;

fn sources() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Sources::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let inside = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(module) = inside.strip_suffix(".rs").filter(|name| !matches!(*name, "lib" | "main")) {
                let module = module.strip_suffix("/mod").unwrap_or(module);
                let module = module.split('/').map(str::to_owned).collect();
                found.insert(module, (format!("src/{inside}"), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The layers as `lib.rs` lists them, bottom to top.
fn layers() -> Vec<String> {
    let lib = include_str!("../../src/lib.rs");
    lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).map(str::to_owned).collect()
}

/// Every path that begins here, with the groups in braces written out.
fn paths(text: &str) -> Vec<Vec<String>> {
    let name: String = text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    let rest = &text[name.len()..];
    if name.is_empty() {
        let Some(group) = text.strip_prefix('{') else { return vec![Vec::new()] };
        let (mut depth, mut start, mut found) = (0, 0, Vec::new());
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    found.extend(paths(group[start..at].trim()));
                    start = at + 1;
                    if letter == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
        return found;
    }
    let deeper = rest.strip_prefix("::").map_or(vec![Vec::new()], paths);
    deeper.into_iter().map(|path| std::iter::once(name.clone()).chain(path).collect()).collect()
}

/// Which modules a module mentions: by `crate::…`, or below itself by the name of a child.
fn uses(sources: &Sources) -> BTreeSet<Use> {
    let mut found = BTreeSet::new();
    for (from, (file, text)) in sources {
        let is_child = |name: &str| sources.contains_key(&[from.as_slice(), &[name.to_owned()]].concat());
        let mut at = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap();
            let mut mention = |path: Vec<String>| {
                // The longest part of the path that is a module; what follows are its items.
                let module =
                    (1..=path.len()).rev().map(|length| &path[..length]).find(|part| sources.contains_key(*part));
                if let Some(to) = module.filter(|to| *to != from) {
                    let at = format!("{file}:{number}: {}", line.trim());
                    found.insert(Use { from: from.clone(), to: to.to_vec(), at });
                }
            };
            for (start, _) in code.match_indices("crate::") {
                // A group may go on over the next lines.
                paths(&text[at + start + "crate::".len()..]).into_iter().for_each(&mut mention);
            }
            for (start, _) in code.match_indices("::") {
                let name: String =
                    code[..start].chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let name: String = name.chars().rev().collect();
                let first = !code[..start - name.len()].ends_with("::");
                if first && is_child(&name) {
                    let path = paths(&code[start + 2..]).into_iter();
                    path.for_each(|path| mention([from.as_slice(), std::slice::from_ref(&name), &path].concat()));
                }
            }
            at += line.len() + 1;
        }
    }
    found
}

/// A line for each mention that points the wrong way; empty if there is none.
fn wrong_ways(sources: &Sources, layers: &[String]) -> String {
    let uses = uses(sources);
    let mut wrong = String::new();
    let rank = |module: &[String]| layers.iter().position(|layer| *layer == module[0]);
    for Use { from, to, at } in &uses {
        if rank(from) < rank(to) {
            writeln!(wrong, "{} uses {}, a layer above it: {at}", from.join("::"), to.join("::")).unwrap();
        }
    }
    // In every folder: which of its children use which. The folder's own file counts as one of them.
    let folders: BTreeSet<&[String]> =
        sources.keys().flat_map(|module| (0..module.len()).map(|to| &module[..to])).collect();
    for folder in folders {
        let child = |module: &[String]| -> Option<String> {
            let below = module.strip_prefix(folder)?;
            Some(below.first().map_or("mod.rs", String::as_str).to_owned())
        };
        let mut graph: BTreeMap<String, BTreeMap<String, &str>> = BTreeMap::new();
        for Use { from, to, at } in &uses {
            if let (Some(from), Some(to)) = (child(from), child(to))
                && from != to
            {
                graph.entry(from).or_default().insert(to, at);
            }
        }
        if let Some(cycle) = cycle(&graph) {
            writeln!(wrong, "a circle in src/{}:", folder.join("/")).unwrap();
            for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                writeln!(wrong, "  {from} uses {to}: {}", graph[from][to]).unwrap();
            }
        }
    }
    wrong
}

/// Modules that use each other in a circle, if there are any.
fn cycle(graph: &BTreeMap<String, BTreeMap<String, &str>>) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        graph: &BTreeMap<String, BTreeMap<String, &str>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|before| before == at) {
            return Some(way[start..].to_vec());
        }
        if done.contains(at) {
            return None;
        }
        way.push(at.to_owned());
        let found = graph.get(at).and_then(|uses| uses.keys().find_map(|next| walk(next, graph, way, done)));
        way.pop();
        done.insert(at.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| walk(start, graph, &mut Vec::new(), &mut done))
}

#[test]
fn modules_use_only_what_stands_below_them() {
    let sources = sources();
    assert!(sources.len() > 50 && uses(&sources).len() > 200, "the sources were not read");
    let wrong = wrong_ways(&sources, &layers());
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Small sources, to see that the check finds what it should.
fn planted(files: &[(&str, &str)]) -> String {
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let sources = files.iter().map(|(path, text)| (module(path), (format!("src/{path}.rs"), (*text).to_owned())));
    wrong_ways(&sources.collect(), &["low".to_owned(), "high".to_owned()])
}

#[test]
fn a_use_that_points_up_is_named_with_its_line() {
    let high = ("high", "use crate::low::{self, Thing};\n");
    assert_eq!(planted(&[("low", "pub struct Thing;\n"), high]), "");
    let up = planted(&[("low", "//! Low.\nfn f() { crate::high::g() }\n"), ("high", "")]);
    assert!(up.starts_with("low uses high, a layer above it: src/low.rs:2: fn f()"), "{up}");
    let grouped = planted(&[("low", "use crate::{\n    base::X,\n    high::Y,\n};\n"), ("high", "")]);
    assert!(grouped.contains("low uses high"), "{grouped}");
    assert_eq!(planted(&[("low", "// crate::high is above.\n"), ("high", "")]), "");
}

#[test]
fn modules_that_use_each_other_are_named_at_any_depth() {
    let files = [
        ("low", ""),
        ("low/a", "use crate::low::b::x::B;\n"),
        ("low/b", ""),
        ("low/b/x", ""),
        ("low/b/y", "use crate::low::a;\n"),
    ];
    let circle = planted(&files);
    assert!(circle.contains("a circle in src/low:") && circle.contains("src/low/b/y.rs:1"), "{circle}");
    let parent = planted(&[("low", "pub mod a;\nfn f() { a::g() }\n"), ("low/a", "use crate::low::f;\n")]);
    assert!(parent.contains("a circle in src/low:") && parent.contains("mod.rs uses a"), "{parent}");
    assert_eq!(planted(&[("low", "pub mod a;\nfn f() { a::g() }\n"), ("low/a", "use crate::base::f;\n")]), "");
}

#[test]
fn every_query_has_a_span_that_times_it() {
    let of_database = |module: &&Vec<String>| module.starts_with(&["store".to_owned(), "db".to_owned()]);
    let sources = sources();
    let mut seen = 0;
    for module in sources.keys().filter(of_database) {
        let (file, text) = &sources[module];
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub async fn ")) {
            let signature = lines[number..].iter().take_while(|line| !line.ends_with('{')).chain([&lines[number]]);
            if signature.into_iter().any(|line| line.contains("conn: &mut")) {
                let attribute = lines[number - 1];
                assert!(attribute.starts_with("#[instrument(level = \"debug\""), "{file}:{}: {line}", number + 1);
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "only {seen} queries were found");
}
