"""Around the text-recognition network: a picture of one line in, text out.

The network (PP-OCRv4) looks at the line in steps of 8 pixels and gives for each step a probability per character of its
dictionary, with "nothing here" first.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

HEIGHT = 48
STEP = 8


def draw_line(text):
    """A picture of the text, dark on light, in the font that Pillow carries."""
    font = ImageFont.load_default(size=40)
    left, top, right, bottom = font.getbbox(text)
    picture = Image.new("RGB", (right - left + 24, bottom - top + 20), (250, 248, 240))
    ImageDraw.Draw(picture).text((12 - left, 10 - top), text, font=font, fill=(20, 24, 60))
    return picture


def to_input(picture):
    """float32 [1, 3, 48, W], blue first, in -1..1; W follows from the picture's shape, padded to whole steps."""
    width = max(STEP, round(HEIGHT * picture.width / picture.height))
    resized = picture.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    values = (np.asarray(resized, np.float32)[:, :, ::-1] / 255 - 0.5) / 0.5
    padded = np.pad(values, ((0, 0), (0, -width % STEP), (0, 0)))
    return np.ascontiguousarray(padded.transpose(2, 0, 1)[None])


def to_text(probabilities, characters):
    """(text, mean probability of its characters) of one line's [1, steps, classes].

    Connectionist temporal classification: the likeliest class of each step, repeats merged, "nothing" (class 0) left out.
    """
    classes = ["", *characters, " "]
    best = probabilities[0].argmax(axis=1)
    starts = np.concatenate([[True], best[1:] != best[:-1]]) & (best != 0)
    text = "".join(classes[index] for index in best[starts]).strip()  # the picture's margins read as spaces
    return text, float(probabilities[0].max(axis=1)[starts].mean()) if text else 0.0
