"""The papers of the families and of published numbers on cards."""

from __future__ import annotations

from typing import NamedTuple


class Citation(NamedTuple):
    """A paper, as a card cites it."""

    key: str
    title: str
    authors: str
    year: int
    arxiv: str

    def named(self) -> str:
        """As a text cites it: `Chen et al. 2021`."""
        authors = [one.partition(",")[0] for one in self.authors.split(" and ")]
        return f"{authors[0] if len(authors) == 1 else f'{authors[0]} et al.'} {self.year}"

    def bibtex(self) -> str:
        """As an `@misc` entry."""
        fields = {"title": self.title, "author": self.authors, "year": self.year, "eprint": self.arxiv}
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@misc{{{self.key},", *lines, "  archivePrefix = {arXiv}", "}"])


CHEN = Citation(
    "chen2021decision",
    "Decision Transformer: Reinforcement Learning via Sequence Modeling",
    "Chen, Lili and Lu, Kevin and Rajeswaran, Aravind and Lee, Kimin and Grover, Aditya and Laskin, Michael and "
    "Abbeel, Pieter and Srinivas, Aravind and Mordatch, Igor",
    2021,
    "2106.01345",
)
REID = Citation(
    "reid2022wikipedia",
    "Can Wikipedia Help Offline Reinforcement Learning?",
    "Reid, Machel and Yamada, Yutaro and Gu, Shixiang Shane",
    2022,
    "2201.12122",
)
ZHAO = Citation(
    "zhao2025unveiling",
    "Unveiling Markov Heads in Pretrained Language Models for Offline Reinforcement Learning",
    "Zhao, Wenhao and Xu, Qiushui and Xu, Linjie and Song, Lei and Wang, Jinyu and Zhou, Chunlai and Bian, Jiang",
    2025,
    "2409.06985",
)
SHI = Citation(
    "shi2024unleashing",
    "Unleashing the Power of Pre-trained Language Models for Offline Reinforcement Learning",
    "Shi, Ruizhe and Liu, Yuyao and Ze, Yanjie and Du, Simon S. and Xu, Huazhe",
    2024,
    "2310.20587",
)
D4RL = Citation(
    "fu2020d4rl",
    "D4RL: Datasets for Deep Data-Driven Reinforcement Learning",
    "Fu, Justin and Kumar, Aviral and Nachum, Ofir and Tucker, George and Levine, Sergey",
    2020,
    "2004.07219",
)
LV = Citation(
    "lv2024decision",
    "Decision Mamba: A Multi-Grained State Space Model with Self-Evolution Regularization for Offline RL",
    "Lv, Qi and Deng, Xiang and Chen, Gongwei and Wang, Michael Yu and Nie, Liqiang",
    2024,
    "2406.05427",
)
CARROLL = Citation(
    "carroll2022unimask",
    "Uni[MASK]: Unified Inference in Sequential Decision Problems",
    "Carroll, Micah and Paradise, Orr and Lin, Jessy and Georgescu, Raluca and Sun, Mingfei and Bignell, David and "
    "Milani, Stephanie and Hofmann, Katja and Hausknecht, Matthew and Dragan, Anca and Devlin, Sam",
    2022,
    "2211.10869",
)
