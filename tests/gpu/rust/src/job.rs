//! Launches, as they are read.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// What lies behind a pointer.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: String,
    pub kind: Kind,
    /// In bytes.
    pub size: usize,
    /// Bytes of an element.
    pub item: usize,
    /// Where an output is to be written.
    pub path: PathBuf,
    /// Of an input.
    pub content: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Input,
    Output,
    Workspace,
}

/// One launch, as it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub variant: String,
    /// The one that the library must choose.
    pub target: String,
    /// As its expression gives it.
    pub grid: [u32; 3],
    /// Arguments and launch inputs, as they lie in memory.
    pub scalars: HashMap<String, Vec<u8>>,
    pub buffers: Vec<Buffer>,
    /// By the variant's group too.
    pub by_group: bool,
    /// In all other ways too.
    pub all_ways: bool,
}

impl Job {
    /// Whether an argument is a pointer.
    pub fn is_buffer(&self, name: &str) -> bool {
        self.buffers.iter().any(|buffer| buffer.name == name)
    }
}

#[derive(Clone, Debug)]
pub enum Task {
    Launch(Job),
    /// A variant that this GPU has no image for.
    Absent(String),
}

/// The words of a file of jobs.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn text(&mut self) -> String {
        self.0.next().expect("the jobs end too early").to_owned()
    }

    fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.text();
        word.parse()
            .unwrap_or_else(|_| panic!("{word} is no number"))
    }

    fn buffer(&mut self, kind: Kind) -> Buffer {
        let (name, size, item) = (self.text(), self.number(), self.number());
        let path = if kind == Kind::Workspace {
            PathBuf::new()
        } else {
            self.text().into()
        };
        let content = if kind == Kind::Input {
            fs::read(&path).expect("an input can be read")
        } else {
            Vec::new()
        };
        assert!(
            kind != Kind::Input || content.len() == size,
            "{name} is of another size"
        );
        Buffer {
            name,
            kind,
            size,
            item,
            path,
            content,
        }
    }
}

/// The launches of a file. Panics at what it does not know.
pub fn read(text: &str) -> Vec<Task> {
    let mut words = Words(text.split_whitespace());
    let (mut tasks, mut job) = (Vec::new(), Job::default());
    while let Some(word) = words.0.next() {
        match word {
            "absent" => tasks.push(Task::Absent(words.text())),
            "launch" => {
                job = Job {
                    variant: words.text(),
                    target: words.text(),
                    ..Job::default()
                };
                job.grid = [words.number(), words.number(), words.number()];
            }
            "scalar" => {
                let (name, digits) = (words.text(), words.text());
                let bytes = (0..digits.len() / 2)
                    .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16));
                job.scalars.insert(
                    name,
                    bytes.collect::<Result<_, _>>().expect("hexadecimal digits"),
                );
            }
            "input" => job.buffers.push(words.buffer(Kind::Input)),
            "output" => job.buffers.push(words.buffer(Kind::Output)),
            "zero" => job.buffers.push(words.buffer(Kind::Workspace)),
            "group" => job.by_group = true,
            "ways" => job.all_ways = true,
            "go" => tasks.push(Task::Launch(std::mem::take(&mut job))),
            _ => panic!("{word} is no word of jobs"),
        }
    }
    tasks
}
