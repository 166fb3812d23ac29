"""Writes tokensetratio.json, what thefuzz.fuzz.token_set_ratio says of pairs of texts: pip install thefuzz==0.22.1; python tokensetratio.py"""

import itertools
import json
import random

from thefuzz import fuzz

texts = [
    "", " ", "black", "Black", "blue", "light blue", "blue light", "dark blue grey", "easy to use", "easy use", "long sleeve", "long sleeves", "long-sleeve",
    "machine washable", "machine wash", "washable", "non slip", "slip resistant", "water resistant", "waterproof", "gluten free", "glutenfree", "gluten-free!",
    "pack of 12", "pack of 1", "12 pack", "x-large", "xx-large", "5.5 | 6", "café crème", "black | white", "b black", "stainless steel", "steel",
]
pairs = list(itertools.product(texts, texts))
random.seed(1)
words = "red blue easy use free long wide slip steel wool soft hand wash dry of the a".split()
for _ in range(400):
    pairs.append(tuple(" ".join(random.choices(words, k=random.randint(1, 5))) for _ in range(2)))
json.dump([[a, b, fuzz.token_set_ratio(a, b)] for a, b in pairs], open("tokensetratio.json", "w"), ensure_ascii=False, separators=(",", ":"))
