"""The configurations of the zoo, by what they are for; `models.zoo` puts them together."""
