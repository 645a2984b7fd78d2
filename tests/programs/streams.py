"""Compares images with texts: two towers on two streams, joined in each iteration."""

import torch
import torch.nn.functional as F
from torch import nn

from support import Clock, finish, parse, plant


def layer(width):
    return nn.TransformerEncoderLayer(
        width, 8, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )


class ImageTower(nn.Sequential):
    def forward(self, patches):
        return F.normalize(super().forward(patches).mean(dim=1), dim=-1)


class TextTower(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(layer(width) for _ in range(layers))

    def forward(self, ids):
        x = self.embedding(ids)
        for number, block in enumerate(self.blocks):
            if number == 1:
                plant(1)  # hidden
            x = block(x)
        return F.normalize(x.mean(dim=1), dim=-1)


class Pair:
    """Both towers: each on its stream where there are streams."""

    def __init__(self, image, text, device):
        self.towers = (image, text)
        cuda = device.type == "cuda"
        self.streams = [torch.cuda.Stream(device) if cuda else None for _ in self.towers]
        self.ends = [torch.cuda.Event() if cuda else None for _ in self.towers]

    def __call__(self, *inputs):
        features = []
        for tower, stream, end, values in zip(self.towers, self.streams, self.ends, inputs):
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                features.append(tower(values))
                if end is not None:
                    end.record(stream)
        for end in self.ends:
            if end is not None:
                torch.cuda.current_stream().wait_event(end)
        return features


def prepare(images, texts, i):
    plant(0)
    return images[i % len(images)], texts[i % len(texts)]


def matches(similarity):
    rows = similarity.float().cpu()
    plant(2)
    return rows


def best(rows):
    plant(3)
    return [max(range(len(row)), key=row.__getitem__) for row in rows.tolist()]


@torch.inference_mode()
def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    batch, patches, width, layers = (192, 256, 768, 4) if big else (2, 16, 64, 2)
    dtype = torch.float16 if big else torch.float32
    image = ImageTower(*(layer(width) for _ in range(layers))).to(device, dtype).eval()
    text = TextTower(width, layers + 2).to(device, dtype).eval()
    images = torch.randn(4, batch, patches, width).to(device, dtype)
    texts = torch.randint(0, 1000, (4, 8, 32)).to(device)
    pair, clock, chosen = Pair(image, text, device), Clock(options), {}
    for i in clock.iterations():
        image_features, text_features = pair(*prepare(images, texts, i))
        rows = matches(image_features @ text_features.T)
        for number in best(rows):
            chosen[number] = chosen.get(number, 0) + 1
        plant(4)
    finish(clock, rows * 1000)


if __name__ == "__main__":
    main()
