"""What starts from a language model: backbones, their texts and their losses."""
