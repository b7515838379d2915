//! The depfile that Kiln writes, in make's syntax.

use std::path::PathBuf;

/// The files that a depfile names behind its target, in order; folders and what is gone are left out.
///
/// Cargo looks at all that lies below a folder, and takes a name that is not there for one that always changes.
pub(crate) fn files(depfile: &str) -> Vec<PathBuf> {
    words(depfile)
        .into_iter()
        .skip(1)
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .collect()
}

/// What blanks and line ends lie between, with make's escapes undone: a backslash before a blank, `#` or backslash, and
/// a dollar twice.
fn words(depfile: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut characters = depfile.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\n' => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            '\\' => match characters.next() {
                // The line goes on.
                Some('\n') | None => {}
                Some(escaped) => word.push(escaped),
            },
            '$' => {
                characters.next_if_eq(&'$');
                word.push('$');
            }
            _ => word.push(character),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn names_come_out_as_they_were() {
        let text = "/out/st\\ amp: \\\n /a/b.py \\\n /a\\ $$tricky\\ \\#name\\\\ü/c.py\n";
        assert_eq!(
            words(text),
            ["/out/st amp:", "/a/b.py", "/a $tricky #name\\ü/c.py"]
        );
        assert_eq!(words("stamp:\n"), ["stamp:"]);
    }
}
