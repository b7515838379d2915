//! What the condition of a variant depends on, for whoever reads that it does not hold.

use core::fmt;

/// How many arguments are told, at most; it keeps errors small.
const MAX_TOLD: usize = 4;

/// The names in a condition, and the values of those that are constants.
#[doc(hidden)]
#[derive(Debug, PartialEq)]
pub struct Compared {
    pub(crate) arguments: &'static [&'static str],
    pub(crate) constants: &'static [(&'static str, i64)],
}

/// What a condition depends on: arguments, the first four of them, then constants, each with its value. It prints as
/// `n_cols is 20000, BLOCK_SIZE is 16384`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    compared: &'static Compared,
    numbers: [i64; MAX_TOLD],
}

impl Values {
    /// Nothing is told.
    pub(crate) const NONE: Self = Self {
        compared: &Compared {
            arguments: &[],
            constants: &[],
        },
        numbers: [0; MAX_TOLD],
    };

    /// `numbers` are those of the arguments, in order; the largest stands for all that an `i64` does not hold, too.
    pub(crate) fn new(compared: &'static Compared, numbers: &[i64]) -> Self {
        let mut told = [0; MAX_TOLD];
        told.iter_mut()
            .zip(numbers)
            .for_each(|(told, number)| *told = *number);
        Self {
            compared,
            numbers: told,
        }
    }

    pub(crate) const fn missed_by(self, shortfall: i64) -> Missed {
        Missed {
            values: self,
            shortfall,
        }
    }

    /// Each name with its value; `i64::MAX` stands for more, too.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, i64)> + '_ {
        let names = self.compared.arguments.iter().copied();
        let constants = self.compared.constants.iter();
        names.zip(self.numbers).chain(constants.copied())
    }
}

impl fmt::Display for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let more = if value == i64::MAX { " or more" } else { "" };
            write!(formatter, "{comma}{name} is {value}{more}")?;
        }
        Ok(())
    }
}

/// A condition that does not hold.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Missed {
    pub(crate) values: Values,
    /// 0 where it holds: the less, the nearer it comes.
    pub(crate) shortfall: i64,
}
