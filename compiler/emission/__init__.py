"""From loop nests to instructions: recognise every instruction a nest could become, cost them, emit the best."""
